package snapshot

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// FS is the file system of the disk tier; tests have one that fails and loses power. Names are paths as in package os.
// Errors wrap those of package fs (fs.ErrNotExist, …) or syscall's (ENOSPC).
type FS interface {
	// Prepare makes dir and its parents with access for this user only, or reports why an existing dir is not safe.
	Prepare(dir string) error
	// ReadDir returns the regular files of dir, in any order, and omits all others.
	ReadDir(dir string) ([]FileInfo, error)
	Open(name string) (File, error)
	// Create makes a new file with mode 0600. It never follows a link or opens an existing file.
	Create(name string) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	SetTime(name string, t time.Time) error
	// Lock locks a file until the process ends. It fails with errLocked (wrapped) when another process has the lock.
	Lock(name string) (io.Closer, error)
}

// FileInfo is one file of a directory.
type FileInfo struct {
	Name    string
	Size    int64 // bytes
	ModTime time.Time
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Size() (int64, error)
	Sync() error
}

var errLocked = errors.New("in use by another process")

// osFS is the operating system's file system.
type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	i, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return i.Size(), nil
}

func (osFS) Prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	i, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	return private(dir, i)
}

func (osFS) ReadDir(dir string) ([]FileInfo, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]FileInfo, 0, len(entries))
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		i, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, FileInfo{e.Name(), i.Size(), i.ModTime()})
	}
	return out, nil
}

func (osFS) Open(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) SetTime(name string, t time.Time) error { return os.Chtimes(name, time.Time{}, t) }
func (osFS) Lock(name string) (io.Closer, error)    { return lockFile(name) }

// CheckDir reports why dir cannot be a cache's directory: it cannot be made, is not safe, not writable, or in use. It
// makes the directory.
func CheckDir(dir string) error {
	var fsys osFS
	if err := fsys.Prepare(dir); err != nil {
		return err
	}
	probe := filepath.Join(dir, "check"+tempSuffix)
	if err := fsys.Remove(probe); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(probe)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), fsys.Remove(probe)); err != nil {
		return err
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return err
	}
	return lock.Close()
}
