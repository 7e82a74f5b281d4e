// Package files keeps files that clients upload, for batches and for themselves: each user's apart, under limits, over
// restarts. A process that is killed at any moment leaves no half of a file that can be read.
package files

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Limits of a Store.
const (
	MaxFile       = 256 << 20 // bytes of a file
	MaxOwnerBytes = 1 << 30   // of all files of a user
	MaxOwnerFiles = 1000
	MaxBytes      = 8 << 30 // of all files
	maxName       = 255     // bytes
	maxPurpose    = 64      // bytes
	maxMeta       = 4 << 10 // bytes of a description on disk
)

// Results is the purpose of a file of a batch's results, which may be as large as all files of its owner.
const Results = "batch_output"

// File describes a file.
type File struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Purpose string `json:"purpose"`
	MIME    string `json:"mime,omitempty"`
	Bytes   int64  `json:"bytes"`
	Created int64  `json:"created"`           // seconds since 1970
	Expires int64  `json:"expires,omitempty"` // 0 = when it is deleted
}

// Store is a folder with files. It is safe for concurrent use.
type Store struct {
	dir string
	now func() time.Time

	mu    sync.Mutex
	files map[uint32]map[string]File // by owner and id
	begun map[uint32]int             // files by owner that are being written
	used  map[uint32]int64           // bytes by owner, of files that are being written too
	all   int64
}

// ErrNone: the owner has no such file.
var ErrNone = errors.New("there is no such file")

var idForm = regexp.MustCompile(`^file-[0-9a-f]{24}$`)

// NewID returns an id that compares above all earlier ones, so that a list can continue after an entry that has been
// deleted: 7 bytes of the time in µs and 5 random ones, as 24 digits.
func NewID(now time.Time) string {
	var id [12]byte
	rand.Read(id[7:])
	us := uint64(now.UnixMicro())
	for i := range 7 {
		id[i] = byte(us >> (8 * (6 - i)))
	}
	return hex.EncodeToString(id[:])
}

// Open reads the folder, which is made if it is not there, and removes what was not finished or has expired.
func Open(dir string, now func() time.Time) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, now: now, files: map[uint32]map[string]File{}, begun: map[uint32]int{},
		used: map[uint32]int64{}}
	owners, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, o := range owners {
		if uid, err := strconv.ParseUint(o.Name(), 10, 32); err == nil && o.IsDir() {
			s.read(uint32(uid))
		}
	}
	return s, nil
}

// read reads the files of an owner. What cannot be read is removed: it has no description that says what it is.
func (s *Store) read(owner uint32) {
	dir := s.folder(owner)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	kept := map[string]bool{}
	for _, e := range entries {
		id, isMeta := strings.CutSuffix(e.Name(), ".json")
		if !isMeta || !idForm.MatchString(id) {
			continue
		}
		var f File
		text, err := readSome(filepath.Join(dir, e.Name()), maxMeta)
		if err == nil {
			err = json.Unmarshal(text, &f)
		}
		st, serr := os.Stat(filepath.Join(dir, id))
		if err != nil || serr != nil || f.ID != id || st.Size() != f.Bytes || s.expired(&f) {
			continue
		}
		kept[id], kept[e.Name()] = true, true
		s.add(owner, f)
	}
	for _, e := range entries {
		if !kept[e.Name()] {
			_ = os.Remove(filepath.Join(dir, e.Name())) // the next start tries again
		}
	}
}

func readSome(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

func (s *Store) folder(owner uint32) string {
	return filepath.Join(s.dir, strconv.FormatUint(uint64(owner), 10))
}

func (s *Store) add(owner uint32, f File) {
	if s.files[owner] == nil {
		s.files[owner] = map[string]File{}
	}
	s.files[owner][f.ID] = f
	s.used[owner] += f.Bytes
	s.all += f.Bytes
}

func (s *Store) expired(f *File) bool { return f.Expires != 0 && f.Expires <= s.now().Unix() }

// check returns the error of a description that a client gives. Its purpose may be missing as long as it is open.
func check(f *File, open bool) error {
	switch {
	case f.Name == "" || len(f.Name) > maxName || !utf8.ValidString(f.Name) || strings.ContainsFunc(f.Name, control):
		return bad("the name of the file must have 1…%d bytes of text without control characters", maxName)
	case f.Purpose == "" && open:
	case f.Purpose == "" || len(f.Purpose) > maxPurpose || strings.ContainsFunc(f.Purpose, control):
		return bad("field \"purpose\" must have 1…%d bytes, such as batch or user_data", maxPurpose)
	}
	return nil
}

func control(r rune) bool { return r < 0x20 || r == 0x7f }

// Create keeps a file with the content of body. Its ID, Bytes and Created are set here. The error is a
// *wire.RequestError where the client can do something about it.
func (s *Store) Create(owner uint32, f File, body io.Reader) (File, error) {
	return s.CreateThen(owner, f, body, nil)
}

// CreateThen is Create where then, if there is one, completes the description when the content has come.
func (s *Store) CreateThen(owner uint32, f File, body io.Reader, then func(*File) error) (File, error) {
	if err := check(&f, then != nil); err != nil {
		return f, err
	}
	s.sweep()
	s.mu.Lock()
	many := len(s.files[owner])+s.begun[owner] >= MaxOwnerFiles
	if !many {
		s.begun[owner]++
	}
	s.mu.Unlock()
	if many {
		return f, &wire.RequestError{Code: wire.QueueLimit, Message: fmt.Sprintf("this user has %d files, which is "+
			"the maximum; delete some", MaxOwnerFiles)}
	}
	f.ID, f.Created = "file-"+NewID(s.now()), s.now().Unix()
	n, err := s.make(owner, &f, body, then)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun[owner]--; s.begun[owner] == 0 {
		delete(s.begun, owner)
	}
	s.used[owner] -= n // add counts it again
	s.all -= n
	if err != nil {
		_ = os.Remove(filepath.Join(s.folder(owner), f.ID))
		return f, err
	}
	s.add(owner, f)
	return f, nil
}

// make writes the content and the description of a file. The caller takes back the n bytes that it counts.
func (s *Store) make(owner uint32, f *File, body io.Reader, then func(*File) error) (n int64, err error) {
	dir := s.folder(owner)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	out, err := os.OpenFile(filepath.Join(dir, f.ID), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	most := int64(MaxFile)
	if f.Purpose == Results {
		most = MaxOwnerBytes
	}
	n, err = s.write(owner, most, out, body)
	if err == nil && then != nil {
		err = then(f)
	}
	if err == nil {
		err = check(f, false)
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		f.Bytes = n
		err = s.describe(dir, f)
	}
	return n, err
}

// write copies body to out and counts its bytes, which the caller takes back.
func (s *Store) write(owner uint32, most int64, out io.Writer, body io.Reader) (n int64, err error) {
	buf := make([]byte, 64<<10)
	for {
		k, rerr := body.Read(buf)
		if k > 0 {
			n += int64(k)
			s.mu.Lock()
			s.used[owner] += int64(k)
			s.all += int64(k)
			over := ""
			switch {
			case n > most:
				over = fmt.Sprintf("a file has at most %d bytes", most)
			case s.used[owner] > MaxOwnerBytes:
				over = fmt.Sprintf("the files of a user have at most %d bytes together; delete some", MaxOwnerBytes)
			case s.all > MaxBytes:
				over = fmt.Sprintf("the files of all users have at most %d bytes together", MaxBytes)
			}
			s.mu.Unlock()
			if over != "" {
				return n, &wire.RequestError{Code: wire.FrameTooLarge, Message: over}
			}
			if _, err := out.Write(buf[:k]); err != nil {
				return n, err
			}
		}
		if errors.Is(rerr, io.EOF) {
			return n, nil
		}
		if rerr != nil {
			return n, &wire.RequestError{Code: wire.BadRequest, Message: "the file did not come whole: " + rerr.Error()}
		}
	}
}

// describe writes the description, with which the file is there.
func (s *Store) describe(dir string, f *File) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	t, err := os.CreateTemp(dir, ".meta-*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // removes it after an error
	_, err = t.Write(text)
	if err == nil {
		err = t.Sync()
	}
	if err = errors.Join(err, t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), filepath.Join(dir, f.ID+".json"))
}

// Get describes a file of an owner; ErrNone if there is none.
func (s *Store) Get(owner uint32, id string) (File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.files[owner][id]
	if !ok || s.expired(&f) {
		return File{}, ErrNone
	}
	return f, nil
}

// Read opens a file of an owner. The caller closes it.
func (s *Store) Read(owner uint32, id string) (File, *os.File, error) {
	f, err := s.Get(owner, id)
	if err != nil {
		return f, nil, err
	}
	in, err := os.Open(filepath.Join(s.folder(owner), id))
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNone
	}
	return f, in, err
}

// Delete removes a file of an owner.
func (s *Store) Delete(owner uint32, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.files[owner][id]
	if !ok {
		return ErrNone
	}
	s.remove(owner, f)
	return nil
}

func (s *Store) remove(owner uint32, f File) {
	delete(s.files[owner], f.ID)
	s.used[owner] -= f.Bytes
	s.all -= f.Bytes
	path := filepath.Join(s.folder(owner), f.ID)
	_ = os.Remove(path + ".json") // first: without it the file is not there, and the next start removes the rest
	_ = os.Remove(path)
}

// sweep removes what has expired, of all owners: it counts for their limit together.
func (s *Store) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner, files := range s.files {
		for _, f := range files {
			if s.expired(&f) {
				s.remove(owner, f)
			}
		}
	}
}

// List returns the files of an owner, newest first: in the falling order of their ids.
func (s *Store) List(owner uint32) []File {
	s.sweep()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []File
	for _, f := range s.files[owner] {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(b.ID, a.ID) })
	return out
}
