package store

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/model/gguf"
)

// Header has the properties of a model that are read without its weights.
type Header struct {
	gguf.Info           // without the chat template; see gguf.Brief
	Bytes     int64     // of all files
	Modified  time.Time // the first file's
	// Digest is 64 hexadecimal digits: the file's SHA-256 where its name has it, as in the stores of ollama and of
	// Hugging Face, else gguf.Fingerprint.
	Digest string
}

// ReadHeader reads the header of the model whose first file is at path. With an error about the header's content, such
// as one of a kind that this build does not know, the other fields are set all the same.
func ReadHeader(path string) (h Header, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return h, err
	}
	h.Bytes, h.Modified = st.Size(), st.ModTime()
	if h.Digest = namedDigest(path); h.Digest == "" {
		if h.Digest, err = gguf.Fingerprint(path); err != nil {
			return h, err
		}
	}
	if h.Info, err = gguf.Brief(path); err == nil {
		h.Bytes = h.FileBytes
	}
	h.ChatTemplate = "" // tens of kilobytes
	return h, err
}

// Model reports whether the file is a model, and nothing that goes with one.
func (h *Header) Model() bool {
	return h.Architecture != "clip" && !slices.Contains([]string{"adapter", "mmproj", "imatrix"}, h.Type)
}

// blobName is the name of a file whose SHA-256 it tells: ollama writes sha256-…, Hugging Face's cache the digits.
var blobName = regexp.MustCompile(`^(?:sha256-)?([0-9a-fA-F]{64})$`)

// namedDigest returns the digest that the name of a blob tells, "" for another file.
func namedDigest(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if m := blobName.FindStringSubmatch(filepath.Base(path)); m != nil && filepath.Base(filepath.Dir(path)) == "blobs" {
		return strings.ToLower(m[1])
	}
	return ""
}

// Header is ReadHeader, or what it returned while the file had the same size and time.
func (s *Store) Header(path string) (Header, error) {
	st, err := os.Stat(path)
	if err != nil {
		return Header{}, err
	}
	s.mu.Lock()
	f, ok := s.known[path]
	s.mu.Unlock()
	if ok && f.size == st.Size() && f.modified.Equal(st.ModTime()) {
		return f.header, f.err
	}
	f = facts{size: st.Size(), modified: st.ModTime()}
	f.header, f.err = ReadHeader(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= 2*maxModels {
		clear(s.known)
	}
	s.known[path] = f
	return f.header, f.err
}
