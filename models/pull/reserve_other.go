//go:build !linux

package pull

import "os"

// reserve makes f size bytes long.
func reserve(f *os.File, size int64) error { return f.Truncate(size) }

// syncData puts the bytes of f on the disk.
func syncData(f *os.File) error { return f.Sync() }
