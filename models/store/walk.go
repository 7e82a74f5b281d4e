package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
)

// file is a regular file below a root.
type file struct {
	rel      string // path below the folder that was walked, with slashes
	path     string
	size     int64
	modified time.Time
	target   string // name of the file that a link leads to, "" for a file itself
}

// fileID tells folders apart, whatever their names.
type fileID struct{ dev, ino uint64 }

// walk calls visit for each regular file below dir. Links are followed, after the files of the folder itself; a folder
// is entered once. Entries whose name begins with a dot are left out.
func (s *scan) walk(dir string, visit func(file)) {
	if st, err := os.Stat(dir); err == nil {
		s.seen[idOf(dir, st)] = true
	}
	s.walkBelow(dir, "", maxDepth, visit)
}

// walkBelow is walk for a folder that is rel below the first one. Folders in it are entered as long as depth is above
// 1; 0 is a folder without any.
func (s *scan) walkBelow(dir, rel string, depth int, visit func(file)) {
	entries, ok := s.readDir(dir)
	if !ok {
		return
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int {
		return cmp.Compare(a.Type()&fs.ModeSymlink, b.Type()&fs.ModeSymlink)
	})
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		path, below := filepath.Join(dir, name), name
		if rel != "" {
			below = rel + "/" + name
		}
		st, err := os.Stat(path)
		switch {
		case err != nil:
			// A link to a file that is gone: an interrupted download, or a cache that was cleaned.
			if isGGUF(name) || !errors.Is(err, fs.ErrNotExist) {
				s.problem(path, "%s", reason(err))
			}
		case st.IsDir() && depth == 1:
			s.problem(path, "it is %d folders deep; what is in it is not listed", maxDepth)
		case st.IsDir() && depth > 1:
			if id := idOf(path, st); !s.seen[id] {
				s.seen[id] = true
				s.walkBelow(path, below, depth-1, visit)
			}
		case st.IsDir(): // a flat folder has none
		case st.Mode().IsRegular():
			f := file{rel: below, path: path, size: st.Size(), modified: st.ModTime()}
			if e.Type()&fs.ModeSymlink != 0 {
				if target, err := os.Readlink(path); err == nil {
					f.target = filepath.Base(target)
				}
			}
			visit(f)
		case isGGUF(name):
			s.problem(path, "it is %s, not a file", clierr.Kind(st.Mode()))
		}
	}
}

// readDir lists a folder, within the entries that the scan has left.
func (s *scan) readDir(dir string) ([]fs.DirEntry, bool) {
	if s.ctx.Err() != nil || s.left <= 0 {
		return nil, false
	}
	d, err := os.Open(dir)
	if err != nil {
		s.problem(dir, "%s", reason(err))
		return nil, false
	}
	defer d.Close()
	entries, err := d.ReadDir(s.left)
	s.left -= len(entries)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		s.problem(dir, "%s", reason(err))
	case s.left <= 0:
		s.problem(s.root.path, "it has more than %d files; the others are not listed", maxEntries)
	}
	return entries, true
}

// usable reports whether a file is GGUF by its first bytes and is owned by a user whose models may be loaded: this one,
// root, or the one whose folder the place is. It notes why not.
func (s *scan) usable(f file) bool {
	why, err := s.check(f)
	switch {
	case err != nil:
		s.problem(f.path, "%s", reason(err))
	case why != "":
		s.problem(f.path, "%s", why)
	}
	return err == nil && why == ""
}

func (s *scan) check(f file) (why string, err error) {
	// Without blocking: the file may have become a named pipe since.
	in, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return "", err
	}
	uid := owner(st)
	switch {
	case !st.Mode().IsRegular():
		return "it is " + clierr.Kind(st.Mode()) + ", not a file", nil
	case uid != 0 && uid != s.uid && uid != uint32(os.Getuid()):
		return fmt.Sprintf("it belongs to user %d, neither you nor the owner of %s", uid, s.root.path), nil
	}
	var magic [4]byte
	if n, err := io.ReadFull(in, magic[:]); err != nil || !bytes.Equal(magic[:], []byte("GGUF")) {
		return fmt.Sprintf("it is not GGUF: it begins with %q", magic[:n]), nil
	}
	return "", nil
}

// readSmall reads a regular file of at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("it is %s, not a file", clierr.Kind(st.Mode()))
	case st.Size() > limit:
		return nil, fmt.Errorf("it has %d bytes; the maximum is %d", st.Size(), limit)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it grew beyond %d bytes", limit)
	}
	return b, err
}

// reason returns an error without the path, which is beside it.
func reason(err error) string {
	text := clierr.File("", err).Error()
	var pe *fs.PathError
	if errors.As(err, &pe) {
		text = strings.TrimPrefix(text, pe.Path+": ")
	}
	return text
}
