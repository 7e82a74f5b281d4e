package gguf

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
)

// What Fingerprint reads of a file, in bytes: the header's begin, which has the metadata, and the last weights.
const (
	fingerprintHead = 1 << 20
	fingerprintTail = 64 << 10
)

// Fingerprint tells the file at path from others in a few milliseconds: the SHA-256, in hexadecimal, of its size, its
// first MiB and its last 64 KiB. It is not the digest of the whole file.
func Fingerprint(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if err := mustBeFile(path, st.Mode()); err != nil {
		return "", err
	}
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil {
		return "", err
	}
	h := sha256.New()
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(st.Size())))
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, fingerprintHead)); err != nil {
		return "", err
	}
	if _, err := io.Copy(h, io.NewSectionReader(f, max(0, st.Size()-fingerprintTail), fingerprintTail)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
