// Package releasetest makes releases for tests: keys, signatures and archives.
package releasetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Signer signs as ssh-keygen -Y sign does.
type Signer struct{ private ed25519.PrivateKey }

// NewSigner returns the signer of a seed byte: the same key for the same byte.
func NewSigner(seed byte) *Signer {
	return &Signer{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))}
}

func text(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func (s *Signer) wire() []byte {
	return text(text(nil, "ssh-ed25519"), string(s.private.Public().(ed25519.PublicKey)))
}

// Public returns the line of the public key.
func (s *Signer) Public() string {
	return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(s.wire())
}

// Sign returns an armored signature of message in a namespace.
func (s *Signer) Sign(message []byte, namespace string) []byte {
	sum := sha512.Sum512(message)
	signed := text(text(text(text([]byte("SSHSIG"), namespace), ""), "sha512"), string(sum[:]))
	b := binary.BigEndian.AppendUint32([]byte("SSHSIG"), 1)
	b = text(text(text(text(b, string(s.wire())), namespace), ""), "sha512")
	b = text(b, string(text(text(nil, "ssh-ed25519"), string(ed25519.Sign(s.private, signed)))))
	out := "-----BEGIN SSH SIGNATURE-----\n"
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(b)), 70) {
		out += string(line) + "\n"
	}
	return []byte(out + "-----END SSH SIGNATURE-----\n")
}

// Archive returns a tar.gz of files by path. Files in a bin folder and scripts are executable.
func Archive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[name]))}
		if strings.Contains(name, "/bin/") {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Release returns the files of a release with these archives, by name.
func Release(s *Signer, archives map[string][]byte) map[string][]byte {
	out := map[string][]byte{}
	maps.Copy(out, archives)
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(archives)) {
		sum := sha256.Sum256(archives[name])
		sums.WriteString(hex.EncodeToString(sum[:]) + "  " + name + "\n")
	}
	out["SHA256SUMS"] = []byte(sums.String())
	out["SHA256SUMS.sig"] = s.Sign(out["SHA256SUMS"], "uma-serve")
	return out
}
