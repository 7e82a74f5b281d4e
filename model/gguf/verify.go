package gguf

import "io"

// Verify checks the header of one file of size bytes by itself. Of a split model that is any of its files: the first
// has the metadata, and each has the records of its tensors. The error wraps ErrInvalid, or is r's.
func Verify(r io.ReaderAt, size int64) error {
	h, err := readHeader(io.NewSectionReader(r, 0, size), size, false)
	if err != nil || h.int("split.no") > 0 {
		return err
	}
	_, err = h.info()
	return err
}
