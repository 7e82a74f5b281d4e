package store

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Blobs are GGUF files that clients have sent, named by their SHA-256, until a recipe is made of them and as long as
// there is one. The folder begins with a point: a scan leaves it out.

const (
	maxBlobBytes = 1 << 44
	blobStays    = 24 * time.Hour // without a recipe
	uploadPrefix = "upload-"      // of files that are not whole
)

// ErrBlob: what was sent is not what its digest says, or is no GGUF file.
var ErrBlob = errors.New("the file cannot be used")

// isBlob reports whether a recipe's origin is a blob.
func isBlob(from string) bool { return digest.MatchString(from) }

func (s *Store) blobDir() string { return filepath.Join(s.dir, ".blobs") }

// blobFile returns the file of a digest, "sha256:…".
func (s *Store) blobFile(of string) string {
	return filepath.Join(s.blobDir(), "sha256-"+strings.ToLower(digest.FindStringSubmatch(of)[1]))
}

// ParseDigest returns a SHA-256 digest as "sha256:…" in lower case; ok is false for another text.
func ParseDigest(text string) (sum string, ok bool) {
	m := digest.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return "sha256:" + strings.ToLower(m[1]), true
}

// ByDigest returns the origin of a recipe for a file with this SHA-256: the name of a model, or the digest of a blob.
// ok is false if none is known.
func (c *Catalog) ByDigest(sum string) (from string, ok bool) {
	for i := range c.Models {
		m := &c.Models[i]
		if m.Recipe == nil && len(m.Files) == 1 && m.Incomplete == "" && c.sumOf(m) == sum {
			return m.ID(), true
		}
	}
	st, err := os.Stat(c.store.blobFile(sum))
	return sum, err == nil && st.Mode().IsRegular()
}

// sumOf returns the SHA-256 of a model's file as far as its place or the record of its download tells; "" = not.
func (c *Catalog) sumOf(m *Model) string {
	if m.Digest != "" || m.Place != Own {
		return m.Digest
	}
	var record struct{ Sum string }
	text, err := readSmall(m.Path()+".json", maxManifest)
	if err != nil || json.Unmarshal(text, &record) != nil {
		return ""
	}
	return record.Sum
}

// PutBlob keeps what r brings, a GGUF file with this SHA-256 digest. A file has its name when it is whole and its hash
// is right; the error wraps ErrBlob when it is not.
func (s *Store) PutBlob(sum string, r io.Reader) error {
	if err := os.MkdirAll(s.blobDir(), 0o755); err != nil {
		return err
	}
	s.pruneBlobs()
	f, err := os.CreateTemp(s.blobDir(), uploadPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // removes the file after an error
	defer f.Close()
	if err := writeBlob(f, sum, r); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), s.blobFile(sum))
}

// blobBytes is the size of a write: reads from a socket, and the pieces of io.Copy, are smaller.
const blobBytes = 256 << 10

// writeBlob copies r to f. It returns an error if the bytes are not a GGUF file with this digest; f may have a part of
// them then.
func writeBlob(f io.Writer, sum string, r io.Reader) error {
	h, head, out := sha256.New(), &prefix{}, bufio.NewWriterSize(f, blobBytes)
	n, err := io.Copy(io.MultiWriter(head, out, h), io.LimitReader(r, maxBlobBytes+1))
	switch {
	case err != nil:
		return err
	case n > maxBlobBytes:
		return fmt.Errorf("%w: it has more than %d bytes", ErrBlob, int64(maxBlobBytes))
	case "sha256:"+hex.EncodeToString(h.Sum(nil)) != sum:
		return fmt.Errorf("%w: its SHA-256 is %x after %d bytes, not the one in the request's path", ErrBlob,
			h.Sum(nil), n)
	case !bytes.Equal(head.b, magic):
		return notGGUF(head.b)
	}
	return out.Flush()
}

// magic begins every GGUF file.
var magic = []byte("GGUF")

// prefix keeps the first four bytes, and ends the copying of a file that is not GGUF: it would fill the disk in vain.
type prefix struct{ b []byte }

func (p *prefix) Write(b []byte) (int, error) {
	p.b = append(p.b, b[:min(len(b), len(magic)-len(p.b))]...)
	if !bytes.HasPrefix(magic, p.b) {
		return 0, notGGUF(p.b)
	}
	return len(b), nil
}

func notGGUF(head []byte) error {
	return fmt.Errorf("%w: it is not GGUF: it begins with %q; convert other formats first, such as with "+
		"llama.cpp's convert_hf_to_gguf.py", ErrBlob, head)
}

// pruneBlobs deletes old files that no recipe is made of: uploads that were interrupted, and those whose client has
// made nothing of them.
func (s *Store) pruneBlobs() {
	entries, err := os.ReadDir(s.blobDir())
	if err != nil {
		return
	}
	recipes, problems := s.readRecipes(context.Background())
	if len(problems) > 0 {
		return // a recipe that cannot be read now may be made of any of them
	}
	for _, e := range entries {
		path := filepath.Join(s.blobDir(), e.Name())
		st, err := e.Info()
		makes := func(r Recipe) bool { return isBlob(r.From) && s.blobFile(r.From) == path }
		used := slices.ContainsFunc(recipes, makes)
		if err == nil && !used && time.Since(st.ModTime()) > blobStays {
			_ = os.Remove(path) // another upload tries again
		}
	}
}
