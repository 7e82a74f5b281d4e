// Package shm makes files of fixed size without a name in the file system, for memory that processes share.
package shm

import "os"

// New returns a file of size bytes, all zero, closed on exec; name is what /proc shows. On Linux its size is sealed, as
// a process that truncated the file would end all others that map it by SIGBUS. Other systems have no seals.
func New(name string, size int64) (*os.File, error) {
	f, err := create(name)
	if err != nil {
		return nil, err
	}
	if err = f.Truncate(size); err == nil {
		err = seal(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
