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
	used  map[uint32]int64           // bytes by owner, of files that are being written too
	all   int64
}

// ErrNone: the owner has no such file.
var ErrNone = errors.New("there is no such file")

var idForm = regexp.MustCompile(`^file-[0-9a-f]{24}$`)

// Open reads the folder, which is made if it is not there, and removes what was not finished or has expired.
func Open(dir string, now func() time.Time) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, now: now, files: map[uint32]map[string]File{}, used: map[uint32]int64{}}
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

// check returns the error of a description that a client gives.
func check(f *File) error {
	switch {
	case f.Name == "" || len(f.Name) > maxName || !utf8.ValidString(f.Name) || strings.ContainsFunc(f.Name, control):
		return fmt.Errorf("the name of the file must have 1…%d bytes of text without control characters", maxName)
	case f.Purpose == "" || len(f.Purpose) > maxPurpose || strings.ContainsFunc(f.Purpose, control):
		return fmt.Errorf("field \"purpose\" must have 1…%d bytes, such as batch or user_data", maxPurpose)
	}
	return nil
}

func control(r rune) bool { return r < 0x20 || r == 0x7f }

// Create keeps a file with the content of body. Its ID, Bytes and Created are set here. The error is a
// *wire.RequestError where the client can do something about it.
func (s *Store) Create(owner uint32, f File, body io.Reader) (File, error) {
	if err := check(&f); err != nil {
		return f, &wire.RequestError{Code: wire.BadRequest, Message: err.Error()}
	}
	s.sweep(owner)
	s.mu.Lock()
	many := len(s.files[owner]) >= MaxOwnerFiles
	s.mu.Unlock()
	if many {
		return f, &wire.RequestError{Code: wire.QueueLimit, Message: fmt.Sprintf("this user has %d files, which is "+
			"the maximum; delete some", MaxOwnerFiles)}
	}
	var id [12]byte
	rand.Read(id[:])
	f.ID, f.Created = "file-"+hex.EncodeToString(id[:]), s.now().Unix()
	dir := s.folder(owner)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return f, err
	}
	out, err := os.OpenFile(filepath.Join(dir, f.ID), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return f, err
	}
	n, err := s.write(owner, out, body)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		f.Bytes = n
		err = s.describe(dir, &f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[owner] -= n // add counts it again
	s.all -= n
	if err != nil {
		_ = os.Remove(filepath.Join(dir, f.ID))
		return f, err
	}
	s.add(owner, f)
	return f, nil
}

// write copies body to out and counts its bytes, which the caller takes back.
func (s *Store) write(owner uint32, out io.Writer, body io.Reader) (n int64, err error) {
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
			case n > MaxFile:
				over = fmt.Sprintf("a file has at most %d bytes", MaxFile)
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

// sweep removes what has expired.
func (s *Store) sweep(owner uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files[owner] {
		if s.expired(&f) {
			s.remove(owner, f)
		}
	}
}

// List returns the files of an owner, newest first.
func (s *Store) List(owner uint32) []File {
	s.sweep(owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []File
	for _, f := range s.files[owner] {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int {
		if a.Created != b.Created {
			return int(b.Created - a.Created)
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}
