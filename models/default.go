// Package models contains uma-tiny, uma-serve's default model: a GGUF of a few megabytes with the llama architecture,
// trained by this repository (models/train). models/README.md describes what it can do.
//
// It is part of the binary, except with the build tag nomodel. llama.cpp reads models by path, so the model is written
// to the user's cache directory once; an existing file is compared with the binary's before use.
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

// Notice describes the default model; the daemon prints it when it serves the model.
const Notice = "no --model given: serving the built-in uma-tiny, a small demonstration model and no general " +
	"assistant. " +
	"It adds, subtracts, multiplies, compares and sorts numbers, counts letters, reverses words, knows weekdays and " +
	"months, and solves " +
	"two-step word problems, each with its thinking; use -m FILE.gguf for a model of your own."

// ErrNone: the binary was built without the default model.
var ErrNone = errors.New("this uma-serve was built without its default model (build tag nomodel); give one with -m " +
	"FILE.gguf")

const fileName = "uma-tiny.gguf"

// Default returns the path of a file with the default model. The error is ErrNone or the file system's.
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
	// Without a writable home use a directory for this user among the temporary files.
	dir = filepath.Join(os.TempDir(), fmt.Sprintf("uma-serve-%d", os.Getuid()))
	path, err := place(dir)
	if err != nil {
		return "", fmt.Errorf("unpack the default model: %w; set XDG_CACHE_HOME to a writable directory, or give a "+
			"model with -m FILE.gguf", err)
	}
	return path, nil
}

// place ensures that dir, private to this user, contains the model.
func place(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Another user with write access could change the file between the check and the load.
	if fi, err := os.Stat(dir); err != nil {
		return "", err
	} else if st, ok := fi.Sys().(*syscall.Stat_t); fi.Mode().Perm()&0o022 != 0 || !ok || int(st.Uid) != os.Getuid() {
		return "", &fs.PathError{Op: "use", Path: dir, Err: errors.New("other users can write in it")}
	}
	path := filepath.Join(dir, fileName)
	if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, tiny) {
		return path, nil
	}
	return path, write(path, tiny)
}

// write replaces the file at path atomically: neither a reader nor a daemon that has mapped the old file sees a part of
// it.
func write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // removes the file after an error
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
