package pull

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
)

// sum is the hash that a file must have.
type sum struct {
	kind string // "sha256", or "git-sha1" of files that a hub keeps in git itself
	hex  string
}

func (s sum) String() string { return s.kind + ":" + s.hex }

// parseSum reads "sha256:…".
func parseSum(text string) (sum, error) {
	kind, digits, _ := strings.Cut(text, ":")
	s := sum{kind, strings.ToLower(digits)}
	want := map[string]int{"sha256": sha256.Size, "git-sha1": sha1.Size}[kind]
	if b, err := hex.DecodeString(s.hex); err != nil || len(b) != want || want == 0 {
		return sum{}, fmt.Errorf("%.100q is no SHA-256 digest", text)
	}
	return s, nil
}

// new returns the hash of an empty file of size bytes: git's hash covers the size.
func (s sum) new(size int64) hash.Hash {
	if s.kind == "git-sha1" {
		h := sha1.New() // git's object name; files of the hub above 10 MB have a SHA-256
		fmt.Fprintf(h, "blob %d\x00", size)
		return h
	}
	return sha256.New()
}

// state is the content of FILE.gguf.state while FILE.gguf is downloaded.
//
// Invariant: the bytes in Spans were on the disk before the state was written, and Hashed is at most Spans.prefix().
type state struct {
	Version int    `json:"version"` // stateVersion
	URL     string `json:"url"`     // source of the file, for people
	Sum     string `json:"sum"`     // of the whole file; another one means another file
	Size    int64  `json:"size"`    // bytes
	Spans   spans  `json:"spans"`   // byte ranges on the disk
	Hashed  int64  `json:"hashed"`  // bytes that Hash covers
	Hash    []byte `json:"hash"`    // the hash after Hashed bytes, as package hash marshals it
}

const (
	stateVersion  = 1
	maxStateBytes = 1 << 20
)

// parseState reads a state and checks it against its invariant. want is the file that is asked for: a state of
// another file is an error.
func parseState(b []byte, want state) (state, error) {
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return state{}, err
	}
	switch {
	case s.Version != stateVersion:
		return state{}, fmt.Errorf("version %d", s.Version)
	case s.Sum != want.Sum || s.Size != want.Size:
		return state{}, errors.New("another file")
	case s.Hashed < 0 || s.Hashed > s.Spans.prefix():
		return state{}, fmt.Errorf("hashed %d of %d bytes", s.Hashed, s.Spans.prefix())
	}
	return s, s.Spans.valid(s.Size)
}

// readState is parseState of the file at path, at most maxStateBytes long.
func readState(path string, want state) (state, error) {
	f, err := os.Open(path)
	if err != nil {
		return state{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxStateBytes+1))
	if err != nil {
		return state{}, err
	}
	if len(b) > maxStateBytes {
		return state{}, errors.New("longer than a state is")
	}
	return parseState(b, want)
}

// writeState replaces the file at path: after a crash it holds this state or the one before.
func writeState(path string, s state, sync func(*os.File) error) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeFile(path, b, sync, func(*os.File) error { return nil })
}

// removeState removes the state at path, and one that a killed process has begun to write.
func removeState(path string) {
	os.Remove(path)
	os.Remove(path + ".tmp")
}

// writeFile replaces the file at path by one with these contents, which are on the disk before they have the name.
func writeFile(path string, b []byte, sync, adjust func(*os.File) error) error {
	tmp := path + ".tmp"
	os.Remove(tmp) // of a killed process; O_EXCL follows no link
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, adjust(f), sync(f), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
	}
	return err
}

// restoreHash returns the hash that saved describes; it starts anew when saved is not of this build's form.
func restoreHash(s state, of sum) (hash.Hash, int64) {
	h := of.new(s.Size)
	if u, ok := h.(encoding.BinaryUnmarshaler); ok && s.Hashed > 0 && u.UnmarshalBinary(s.Hash) == nil {
		return h, s.Hashed
	}
	return of.new(s.Size), 0
}

// saveHash returns the state of h for restoreHash; nil when the hash cannot be saved.
func saveHash(h hash.Hash) []byte {
	if m, ok := h.(encoding.BinaryMarshaler); ok {
		if b, err := m.MarshalBinary(); err == nil {
			return b
		}
	}
	return nil
}
