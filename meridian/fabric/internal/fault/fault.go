// Package fault has what all fabrics share: errors, the format of keys, and the reading of a URL. Package fabric
// exports the errors; they are here so that the fabrics need not import the package that opens them.
package fault

import (
	"context"
	"errors"
	"fmt"
)

// The kinds of failure; see package fabric, which exports them.
var (
	ErrNotFound    = errors.New("not found")
	ErrUnavailable = errors.New("unavailable")
	ErrCorrupt     = errors.New("corrupt value")
	ErrTooLarge    = errors.New("value too large")
	ErrKey         = errors.New("bad key")
)

// MaxKeyBytes bounds a key.
const MaxKeyBytes = 200

// CheckKey accepts 1 to MaxKeyBytes letters, digits and "._:-", which have no special meaning to a server, a shell or a
// log.
func CheckKey(key string) error {
	if len(key) == 0 || len(key) > MaxKeyBytes {
		return fmt.Errorf("%w: %d bytes long, want 1 to %d", ErrKey, len(key), MaxKeyBytes)
	}
	for _, c := range []byte(key) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == ':' ||
			c == '-') {
			return fmt.Errorf("%w: %q holds %q, want letters, digits and \"._:-\"", ErrKey, key, c)
		}
	}
	return nil
}

// Begin checks the key and the context at the start of an operation.
func Begin(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Room returns a slice of length n, in dst's storage if that is large enough.
func Room(dst []byte, n int) []byte {
	if cap(dst) < n {
		return make([]byte, n)
	}
	return dst[:n]
}
