//go:build !linux

package shm

import "os"

// create makes a file whose name is removed at once.
func create(name string) (*os.File, error) {
	f, err := os.CreateTemp("", name+"-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// seal does nothing: these systems have no seals.
func seal(*os.File) error { return nil }
