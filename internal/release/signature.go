package release

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// namespace is that of ssh-keygen -Y sign -n: a signature made for another purpose is not accepted.
const namespace = "uma-serve"

// ErrSignature reports that a signature is not one of the expected key over the given bytes.
var ErrSignature = errors.New("the signature does not fit")

// Key is the public key that signs releases.
type Key struct {
	public ed25519.PublicKey
	wire   []byte // in OpenSSH's encoding
}

const sshKeyType = "ssh-ed25519"

// ParseKey reads a line of a .pub file: ssh-ed25519 BASE64 [COMMENT].
func ParseKey(line string) (*Key, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 || fields[0] != sshKeyType {
		return nil, fmt.Errorf("%.80q is no release key; it must be a line %s BASE64, as ssh-keygen -t ed25519 writes "+
			"it", line, sshKeyType)
	}
	wire, err := base64.StdEncoding.DecodeString(fields[1])
	prefix := sshString(nil, sshKeyType)
	if err != nil || len(wire) != len(prefix)+4+ed25519.PublicKeySize || !bytes.HasPrefix(wire, prefix) {
		return nil, fmt.Errorf("%.80q is no release key: the text behind %s is no Ed25519 key", line, sshKeyType)
	}
	k := &Key{public: wire[len(wire)-ed25519.PublicKeySize:], wire: wire}
	if !bytes.Equal(sshString(prefix, string(k.public)), wire) {
		return nil, fmt.Errorf("%.80q is no release key: the length of the key is not %d", line, ed25519.PublicKeySize)
	}
	return k, nil
}

// String returns the line that ParseKey reads.
func (k *Key) String() string { return sshKeyType + " " + base64.StdEncoding.EncodeToString(k.wire) }

const (
	armorBegin = "-----BEGIN SSH SIGNATURE-----"
	armorEnd   = "-----END SSH SIGNATURE-----"
)

// Verify checks an armored signature of ssh-keygen -Y sign over message. Everything of such a signature but its last 64
// bytes follows from the key and the namespace, so it is compared and not parsed.
func (k *Key) Verify(message, armored []byte) error {
	text, ok := strings.CutPrefix(strings.TrimSpace(string(armored)), armorBegin)
	if ok {
		text, ok = strings.CutSuffix(text, armorEnd)
	}
	if !ok {
		return fmt.Errorf("%w: it does not have the form of ssh-keygen -Y sign", ErrSignature)
	}
	blob, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return fmt.Errorf("%w: it is not base64", ErrSignature)
	}
	for _, hash := range []string{"sha512", "sha256"} {
		if rest, ok := bytes.CutPrefix(blob, k.head(hash)); ok && len(rest) == ed25519.SignatureSize {
			if hash == "sha512" && ed25519.Verify(k.public, signed(message), rest) {
				return nil
			}
			if hash != "sha512" {
				return fmt.Errorf("%w: it was made with -O hashalg=%s; sign with sha512", ErrSignature, hash)
			}
		}
	}
	return fmt.Errorf("%w: it was made with another key or in another namespace, or the signed file has changed",
		ErrSignature)
}

// head returns a signature up to its last 64 bytes (PROTOCOL.sshsig of OpenSSH).
func (k *Key) head(hash string) []byte {
	b := binary.BigEndian.AppendUint32([]byte("SSHSIG"), 1) // the version
	b = sshString(b, string(k.wire))
	b = sshString(b, namespace)
	b = sshString(b, "") // reserved
	b = sshString(b, hash)
	inner := sshString(nil, sshKeyType)
	b = binary.BigEndian.AppendUint32(b, uint32(len(inner)+4+ed25519.SignatureSize))
	b = append(b, inner...)
	return binary.BigEndian.AppendUint32(b, ed25519.SignatureSize)
}

// signed returns the bytes that a signature of message signs.
func signed(message []byte) []byte {
	sum := sha512.Sum512(message)
	b := sshString([]byte("SSHSIG"), namespace)
	b = sshString(b, "")
	b = sshString(b, "sha512")
	return sshString(b, string(sum[:]))
}

func sshString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}
