package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

const (
	fingerprintHead    = 4 << 20 // bytes read from the beginning: GGUF keeps its metadata and tensor table there
	fingerprintSamples = 2048    // places spread evenly over the file
	fingerprintSample  = 4096    // bytes read at each
)

// Fingerprint returns a hash of a model's files, in order: of each its size, its first 4 MiB and 2,048 evenly spread
// samples of 4 KiB. It reads 12 MB of a file of any size. settings are the options that change the value of a cell and
// are not in the Origin: rope scaling, flash attention, adapters. Their order matters.
func Fingerprint(files []string, settings ...string) (sum format.Hash, err error) {
	h := blake3.New()
	for _, s := range settings {
		hashNumber(h, int64(len(s)))
		h.Write([]byte(s))
	}
	hashNumber(h, -1)
	for _, path := range files {
		if err := hashFile(h, path); err != nil {
			return sum, fmt.Errorf("fingerprint: %w", err)
		}
	}
	h.Sum(sum[:0])
	return sum, nil
}

func hashNumber(h io.Writer, n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

func hashFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return err
	}
	hashNumber(h, i.Size())
	if _, err := io.Copy(h, io.LimitReader(f, fingerprintHead)); err != nil {
		return err
	}
	b := make([]byte, fingerprintSample)
	for k := int64(1); k <= fingerprintSamples && i.Size() > fingerprintHead; k++ {
		off := i.Size()/fingerprintSamples*k - fingerprintSample // the last one ends near the file's end
		n, err := f.ReadAt(b, max(off, 0))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		h.Write(b[:n])
	}
	return nil
}
