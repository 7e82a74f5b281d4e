package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"testing/iotest"
)

// sizes records the sizes of writes.
type sizes []int

func (s *sizes) Write(b []byte) (int, error) {
	*s = append(*s, len(b))
	return len(b), nil
}

// TestBlobIsWrittenInLargePieces: in whatever pieces an upload comes.
func TestBlobIsWrittenInLargePieces(t *testing.T) {
	data := append([]byte("GGUF"), make([]byte, 2*blobBytes)...)
	var s sizes
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	if err := writeBlob(&s, sum, iotest.HalfReader(bytes.NewReader(data))); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s, []int{blobBytes, blobBytes, 4}) {
		t.Errorf("writes of %d bytes", s)
	}
}
