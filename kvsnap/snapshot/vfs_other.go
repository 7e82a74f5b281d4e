//go:build !unix

package snapshot

import (
	"errors"
	"io"
	"io/fs"
)

const noFollow = 0

func private(string, fs.FileInfo) error { return nil }

func lockFile(string) (io.Closer, error) {
	return nil, errors.New("the disk tier needs a Unix system's file locks")
}
