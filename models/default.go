// Package models holds uma-tiny, the model uma-serve serves when it is given no other: a llama-architecture GGUF of
// some megabytes, trained by this repository (models/train, models/README.md says what it can do and how well).
//
// It is part of the binary unless that was built with the tag nomodel. llama.cpp reads models by path, so the bytes are
// written to the user's cache once; whatever lies there is checked against the binary's before it is used.
package models

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Notice says plainly what the default model is; the daemon prints it when it serves it.
const Notice = "no --model given: serving the built-in uma-tiny, a small demonstration model and no general assistant. " +
	"It adds, subtracts, multiplies, compares and sorts numbers, counts letters, reverses words, knows weekdays and months, and solves " +
	"two-step word problems, each with its thinking; use -m FILE.gguf for a model of your own."

// ErrNone: the binary was built without the default model.
var ErrNone = errors.New("this uma-serve was built without its default model (build tag nomodel); give one with -m FILE.gguf")

const fileName = "uma-tiny.gguf"

// Default returns the path of a file that holds the default model. The error is ErrNone or the file system's.
func Default() (string, error) {
	if len(tiny) == 0 {
		return "", ErrNone
	}
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "uma-serve")
		if path, err := place(dir); err == nil {
			return path, nil
		}
	}
	// No home, or a read-only one: a directory of this user's among the temporary files.
	dir = filepath.Join(os.TempDir(), fmt.Sprintf("uma-serve-%d", os.Getuid()))
	path, err := place(dir)
	if err != nil {
		return "", fmt.Errorf("unpack the default model: %w; set XDG_CACHE_HOME to a directory that can be written, or give a model with -m FILE.gguf", err)
	}
	return path, nil
}

// place makes sure that dir, private to this user, holds the model.
func place(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Others who can write there could change the file between the check and the load.
	if fi, err := os.Stat(dir); err != nil {
		return "", err
	} else if st, ok := fi.Sys().(*syscall.Stat_t); fi.Mode().Perm()&0o022 != 0 || !ok || int(st.Uid) != os.Getuid() {
		return "", &fs.PathError{Op: "use", Path: dir, Err: errors.New("others can write in it")}
	}
	path := filepath.Join(dir, fileName)
	if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, tiny) {
		return path, nil
	}
	return path, write(path, tiny)
}

// write puts data at path in one step: a reader, or a daemon that has the old file mapped, never sees half of it.
func write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already when all went well
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
