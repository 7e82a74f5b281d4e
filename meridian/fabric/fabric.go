// Package fabric stores KV spans on other machines: a prompt computed on one machine can be restored on another.
//
// A [Fabric] holds opaque payloads under keys. uma-serve's payloads are MRDN frames (package mrdn) under
// [mrdn.Prologue.Key]; a fabric does not interpret them. [Open] makes one from a URL:
//
//	memory                   a map in this process with a size cap: for tests without a server
//	nixl-synth               the same, under its name in Meridian's ADR-0006
//	mooncake://MASTER        Mooncake Store: a master and nodes that hold values in memory
//	nixl://ADDRESS           agents that read each other's memory by NVIDIA's NIXL, without a store
//	redis://, valkey://      a Valkey or Redis server or cluster (rediss:// and valkeys:// with TLS)
//
// A fabric may be slow, down, or wrong. Three layers protect requests from that:
//
//   - [Guard] gives each operation a deadline, verifies pulled values, and stops asking for a while when the
//     answers are bad (a circuit breaker). A failure costs a cache miss.
//   - [Offloader] takes operations from the decode loop without making it wait, and runs them on its goroutines.
//   - The caller checks mrdn.Prologue.Matches before a restore: an intact value may be another prompt's.
//
// In Meridian's ADR-0006, push returns a handle chosen by the remote side. A second machine cannot know such a handle,
// so here the caller chooses the key, a hash of the value's identity.
package fabric

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/fabric/memory"
	"github.com/uma-serve/uma-serve/meridian/fabric/mooncake"
	"github.com/uma-serve/uma-serve/meridian/fabric/nixl"
	"github.com/uma-serve/uma-serve/meridian/fabric/valkey"
)

// Fabric stores values under keys. Every implementation passes fabrictest.Run.
//
// All methods are safe from any goroutine. Each takes a context: when its deadline passes, the operation ends with an
// error within a fraction of a second, even if the server is silent. A cancelled operation ends at the next boundary
// between two transfers. Errors wrap one of the Err values of this package, and the context's error when that was the
// reason.
//
// A fabric is a cache: it may forget a value at any time, and then says [ErrNotFound].
type Fabric interface {
	// Push stores a value. Push does not change the value, and keeps no reference to it when it returns. Pushing a
	// value that is known to be there is cheap and renews its time to live. After an error the key has its old value,
	// no value, or the new one; never a mixture.
	Push(ctx context.Context, key string, value []byte) error
	// Pull returns the value, in dst's storage when its capacity suffices (dst's length and content do not matter; an
	// envelope may need a few bytes more), else in new storage. It belongs to the caller. After an error dst's storage
	// may have been written to.
	Pull(ctx context.Context, key string, dst []byte) ([]byte, error)
	// Renew renews the time to live of a value, as pushing it again does, without its bytes. It returns [ErrNotFound]
	// unless all of the value is there.
	Renew(ctx context.Context, key string) error
	// TTL returns how long a value lives after its newest push or renewal; 0 = until the fabric needs its room.
	TTL() time.Duration
	// Delete removes a value. A key without a value is not an error.
	Delete(ctx context.Context, key string) error
	// Label returns the kind of fabric for metrics and messages. The label of a synthetic one says so.
	Label() string
	// Close ends running operations with [ErrUnavailable] and frees the fabric's resources in this process. Values on a
	// server stay. A second Close does nothing.
	Close() error
}

var (
	// ErrNotFound: there is no complete value under this key.
	ErrNotFound = fault.ErrNotFound
	// ErrUnavailable: the fabric could not be reached, or did not answer in time. Later operations may succeed.
	ErrUnavailable = fault.ErrUnavailable
	// ErrCorrupt: the value is not the one that was stored.
	ErrCorrupt = fault.ErrCorrupt
	// ErrTooLarge: the value exceeds the fabric's capacity or configured limit.
	ErrTooLarge = fault.ErrTooLarge
	// ErrKey: the key is empty, longer than [MaxKeyBytes] or holds more than letters, digits and "._:-".
	ErrKey = fault.ErrKey
)

// MaxKeyBytes bounds a key.
const MaxKeyBytes = fault.MaxKeyBytes

// Open makes the fabric that a URL names. It does not connect, so the server may be down. Options follow the question
// mark; an unknown one is an error. Errors name the wrong part of the URL and never contain its password.
func Open(rawURL string) (Fabric, error) {
	scheme, _, hasHost := strings.Cut(rawURL, "://")
	if hasHost {
		var f Fabric
		var err error
		switch {
		case scheme == mooncake.Scheme:
			f, err = mooncake.Open(rawURL)
		case scheme == nixl.Scheme:
			f, err = nixl.Open(rawURL)
		case slices.Contains(valkey.Schemes, scheme):
			f, err = valkey.Open(rawURL)
		default:
			err = fmt.Errorf("scheme %q is unknown; %s", scheme, known)
		}
		if err != nil {
			return nil, fmt.Errorf("fabric URL: %w", err)
		}
		return f, nil
	}
	name, query, _ := strings.Cut(rawURL, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("fabric URL: options after %q: %w", name+"?", err)
	}
	if name != memory.Label && name != memory.SynthLabel {
		return nil, fmt.Errorf("fabric URL: %q is not a fabric; %s", name, known)
	}
	capBytes := int64(memory.DefaultCapBytes)
	for option, values := range options {
		if option != "cap" {
			return nil, fmt.Errorf("fabric URL: option %q is unknown; %s takes cap=BYTES", option, name)
		}
		if capBytes, err = fault.ParseBytes(values[len(values)-1]); err != nil {
			return nil, fmt.Errorf("fabric URL: option cap: %w", err)
		}
	}
	f, err := memory.New(name, capBytes)
	if err != nil {
		return nil, fmt.Errorf("fabric URL: option cap: %w", err)
	}
	return f, nil
}

const known = `want memory[?cap=256MiB], redis://HOST[:PORT], valkey://HOST[:PORT], rediss://, valkeys://, ` +
	`mooncake://MASTER[:PORT] or nixl://ADDRESS[:PORT]`
