// Package fabric moves KV spans off this machine and back: a prompt computed on one is restored on another.
//
// A [Fabric] holds opaque payloads under keys. What uma-serve puts there are MRDN frames (package mrdn), named by
// [mrdn.Prologue.Key]; a fabric does not look into them. [Open] makes one from a URL:
//
//	nixl-synth               in this process, capped: for tests, and to try the whole path without a server
//	mooncake-synth+URL       Mooncake's place in the protocol, around any other fabric; synthetic, as it does not
//	                         speak Mooncake's transfer engine, and labelled so wherever a number shows
//	redis://, valkey://      a Valkey or Redis server or cluster (rediss:// and valkeys:// with TLS)
//
// A fabric is somebody else's machine: slow, down, or wrong. Three layers keep that from any request:
//
//   - [Guard] gives each operation a deadline, verifies what comes back, and stops asking for a while when the
//     answers are bad (a circuit breaker). All it ever costs is a cache miss.
//   - [Offloader] takes operations from the decode loop without making it wait, and runs them elsewhere.
//   - mrdn.Prologue.Matches, by whoever restores: whole bytes of the wrong prompt are wrong all the same.
//
// ADR-0006 of Meridian has push answer with a handle that the remote side chose. A second machine cannot know such
// a handle, so here the caller names the value, by what it is.
package fabric

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/fabric/mooncake"
	"github.com/uma-serve/uma-serve/meridian/fabric/synth"
	"github.com/uma-serve/uma-serve/meridian/fabric/valkey"
)

// Fabric holds values under keys, elsewhere. Every implementation passes fabrictest.Run.
//
// All methods are safe from any goroutine. Each takes a context: when its deadline passes, the operation ends with
// an error within a fraction of a second, also when the other side has gone silent; a cancelled one ends at
// the next boundary between two transfers. Errors wrap one of the Err values of this package, and the context's own when
// that was the reason.
//
// A fabric is a cache: it may forget a value at any time, and then says [ErrNotFound].
type Fabric interface {
	// Push stores a value. The value is the caller's again when Push returns, and is never written to.
	// Pushing the same value again is cheap where that can be found out, and renews its time to live. After
	// an error the key holds what it held before, or nothing, or the new value; never a mixture.
	Push(ctx context.Context, key string, value []byte) error
	// Pull returns the value, in dst's storage when its capacity suffices (dst's length and content do not
	// matter; an envelope may need a few bytes more), else in new storage. It is the caller's. After an error dst's storage
	// may have been written to.
	Pull(ctx context.Context, key string, dst []byte) ([]byte, error)
	// Delete forgets a value. A key that holds none is no error.
	Delete(ctx context.Context, key string) error
	// Label names the kind of fabric in metrics and messages. A synthetic one says so.
	Label() string
	// Close ends operations under way with [ErrUnavailable] and frees what the fabric holds here. Values on a
	// server stay. A second Close does nothing.
	Close() error
}

var (
	// ErrNotFound: no value under this key, or no whole one any more.
	ErrNotFound = fault.ErrNotFound
	// ErrUnavailable: the fabric could not be asked, or did not answer in time. Asking later may succeed.
	ErrUnavailable = fault.ErrUnavailable
	// ErrCorrupt: what came back is not what was stored.
	ErrCorrupt = fault.ErrCorrupt
	// ErrTooLarge: the value is above what the fabric holds or was configured to take.
	ErrTooLarge = fault.ErrTooLarge
	// ErrKey: the key is empty, longer than [MaxKeyBytes] or holds more than letters, digits and "._:-".
	ErrKey = fault.ErrKey
)

// MaxKeyBytes bounds a key.
const MaxKeyBytes = fault.MaxKeyBytes

// Open makes the fabric that a URL names. It does not connect: a server that is down now may be up when it is
// needed. Options stand behind the question mark; an unknown one is an error. Errors name the part of the URL that
// is wrong and never show its password.
func Open(rawURL string) (Fabric, error) {
	kind, rest, wrapped := strings.Cut(rawURL, "+")
	if wrapped && kind == mooncake.Label {
		inner, err := Open(rest)
		if err != nil {
			return nil, err
		}
		return mooncake.New(inner), nil
	}
	scheme, _, hasHost := strings.Cut(rawURL, "://")
	if hasHost {
		for _, s := range valkey.Schemes {
			if scheme == s {
				f, err := valkey.Open(rawURL)
				if err != nil {
					return nil, fmt.Errorf("fabric URL: %w", err)
				}
				return f, nil
			}
		}
		return nil, fmt.Errorf("fabric URL: scheme %q is unknown; %s", scheme, known)
	}
	name, query, _ := strings.Cut(rawURL, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("fabric URL: options after %q: %w", name+"?", err)
	}
	if name != synth.Label && name != mooncake.Label {
		return nil, fmt.Errorf("fabric URL: %q is no fabric; %s", name, known)
	}
	capBytes := int64(synth.DefaultCapBytes)
	for option, values := range options {
		if option != "cap" {
			return nil, fmt.Errorf("fabric URL: option %q is unknown; %s takes cap=BYTES", option, name)
		}
		if capBytes, err = fault.ParseBytes(values[len(values)-1]); err != nil {
			return nil, fmt.Errorf("fabric URL: option cap: %w", err)
		}
	}
	f, err := synth.New(capBytes)
	if err != nil {
		return nil, fmt.Errorf("fabric URL: option cap: %w", err)
	}
	if name == mooncake.Label {
		return mooncake.New(f), nil
	}
	return f, nil
}

const known = `want nixl-synth[?cap=256MiB], mooncake-synth[+URL], redis://HOST[:PORT], valkey://HOST[:PORT], rediss:// or valkeys://`
