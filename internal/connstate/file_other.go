//go:build !linux

package connstate

import "os"

// newFile is a file whose name is removed at once.
func newFile() (*os.File, error) {
	f, err := os.CreateTemp("", "uma-connections-*")
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
