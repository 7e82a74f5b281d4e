// Package mooncake is the fabric on Mooncake Store, the key-value store for KV caches of the Mooncake project: a
// master that knows where values are, and nodes that hold them in memory. It speaks the master's RPC, the HTTP metadata
// server and the nodes' data protocol over TCP, without Mooncake's libraries. Tested with the master and nodes of
// mooncake-transfer-engine-non-cuda 0.3.13.post1. A master of another version is refused at the first use.
//
// Mooncake authenticates no client: who reaches its ports reads, replaces and deletes every value. Therefore each value
// is sealed with a namespace key (package seal), under a name that is a keyed hash. A stale address, another client's
// bytes or a changed bit is then corrupt or a miss, and never another prompt's cells.
//
// A value in Mooncake never changes. Pushing a value that is there costs two calls and the 44 bytes of its header;
// another value under its key removes the old one first. Between the two there is none.
package mooncake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

const (
	// Label is the fabric's name in metrics.
	Label = "mooncake"
	// masterVersion is the answer of a master of 0.3.13 or 0.3.14 to ServiceReady.
	masterVersion = "2.0.0"
	// attempts is the limit on tries of a push or pull whose value is replaced during it.
	attempts = 3
)

// Fabric is a client. It connects at the first use.
type Fabric struct {
	config   Config
	client   [16]byte // the master wants the writer's number in each call that writes
	master   *master
	metadata *metadata

	ctx  context.Context // ended by Close
	stop context.CancelFunc
	once sync.Once
}

// Open is New(ParseURL(url)).
func Open(url string) (*Fabric, error) {
	c, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// New makes a fabric. It does not connect.
func New(c Config) *Fabric {
	f := &Fabric{config: c, master: &master{address: c.Master, timeout: c.ConnectTimeout},
		metadata: newMetadata(c.Metadata, c.ConnectTimeout)}
	_, _ = rand.Read(f.client[:]) // it does not fail
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Label returns "mooncake".
func (f *Fabric) Label() string { return Label }

// TTL returns 0: the master evicts what it needs room for.
func (f *Fabric) TTL() time.Duration { return 0 }

// Push seals a value and stores it, unless the store has the same one.
func (f *Fabric) Push(ctx context.Context, key string, value []byte) error {
	if int64(len(value)) > f.config.MaxBytes {
		return fmt.Errorf("%s: push: %w: %d bytes, the limit (option max) is %d", Label, fault.ErrTooLarge, len(value),
			f.config.MaxBytes)
	}
	return f.do(ctx, "push", key, func(ctx context.Context, name string) error {
		header := f.config.Key.Header(name, value)
		var sealed []byte
		for range attempts {
			answer, err := f.master.call(ctx, "PutStart", putStartBody(f.client, name, len(value)+seal.Overhead))
			if err != nil {
				return err
			}
			to, err := parsePlace("PutStart", answer, false)
			if err == nil {
				if sealed == nil {
					sealed = f.config.Key.Seal(name, header, value)
				}
				return f.write(ctx, name, to, sealed)
			}
			if !isCode(err, codeExists) {
				return err
			}
			if same, err := f.same(ctx, name, header, len(value)); err != nil || same {
				return err
			}
			if err := f.remove(ctx, name); err != nil {
				return err
			}
		}
		return nil // other clients replaced it each time: as if they had done so after this push
	})
}

// write sends a sealed value to its node and tells the master that it is complete.
func (f *Fabric) write(ctx context.Context, name string, to place, sealed []byte) error {
	if to.size != uint64(len(sealed)) {
		return fmt.Errorf("%w: the master has a place of %d bytes for %d", fault.ErrUnavailable, to.size, len(sealed))
	}
	if err := f.transfer(ctx, opWrite, to, sealed); err != nil {
		go f.revoke(name) // ctx may have ended, and the caller must not wait longer
		return err
	}
	answer, err := f.master.call(ctx, "PutEnd", putEndBody(f.client, name))
	if err != nil {
		return err
	}
	return parseDone("PutEnd", answer)
}

// revoke frees the place of a push that failed. If that fails too, the master frees the place after its own timeout.
func (f *Fabric) revoke(name string) {
	ctx, cancel := context.WithTimeout(f.ctx, stallTimeout)
	defer cancel()
	_, _ = f.master.call(ctx, "PutRevoke", putRevokeBody(f.client, name))
}

// same reports whether the store has this value, or a client is about to store one.
func (f *Fabric) same(ctx context.Context, name string, header [seal.HeaderBytes]byte, n int) (bool, error) {
	at, err := f.find(ctx, name)
	switch {
	case isCode(err, codeNotReady):
		return true, nil
	case isCode(err, codeNotFound):
		return false, nil
	case err != nil:
		return false, err
	case at.size != uint64(n+seal.Overhead):
		return false, nil
	}
	var old [seal.HeaderBytes]byte
	if err := f.transfer(ctx, opRead, at, old[:]); err != nil {
		return false, err
	}
	return old == header, nil
}

// find asks the master where a value is, which protects the value from eviction for some seconds.
func (f *Fabric) find(ctx context.Context, name string) (place, error) {
	answer, err := f.master.call(ctx, "GetReplicaList", keyQuery(name))
	if err != nil {
		return place{}, err
	}
	return parsePlace("GetReplicaList", answer, true)
}

// Pull reads a value and opens its seal.
func (f *Fabric) Pull(ctx context.Context, key string, dst []byte) (value []byte, err error) {
	err = f.do(ctx, "pull", key, func(ctx context.Context, name string) error {
		var last place
		for i := range attempts {
			at, err := f.find(ctx, name)
			if err != nil {
				return err
			}
			if at.size < seal.Overhead {
				return fmt.Errorf("%w: %d bytes, a seal alone takes %d", fault.ErrCorrupt, at.size, seal.Overhead)
			}
			if at.size-seal.Overhead > uint64(f.config.MaxBytes) {
				return fmt.Errorf("%w: %d bytes, the limit (option max) is %d", fault.ErrTooLarge,
					at.size-seal.Overhead, f.config.MaxBytes)
			}
			dst = fault.Room(dst, int(at.size))
			if err := f.transfer(ctx, opRead, at, dst); err != nil {
				return err
			}
			value, err = f.config.Key.Open(name, dst)
			if err == nil || i > 0 && at == last {
				return err
			}
			last = at // replaced during the transfer: the address may now be another value's
		}
		return fmt.Errorf("%w: it was replaced during each of %d attempts", fault.ErrNotFound, attempts)
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Renew protects a value from eviction for some seconds.
func (f *Fabric) Renew(ctx context.Context, key string) error {
	return f.do(ctx, "renew", key, func(ctx context.Context, name string) error {
		answer, err := f.master.call(ctx, "ExistKey", keyQuery(name))
		if err != nil {
			return err
		}
		is, err := parseExists(answer)
		if err == nil && !is {
			return codeError(codeNotFound)
		}
		return err
	})
}

// Delete removes a value, even one that a client has a lease on.
func (f *Fabric) Delete(ctx context.Context, key string) error {
	return f.do(ctx, "delete", key, f.remove)
}

func (f *Fabric) remove(ctx context.Context, name string) error {
	answer, err := f.master.call(ctx, "Remove", removeBody(name, true))
	if err != nil {
		return err
	}
	// A value that a client is writing cannot be removed. The writer's push counts as the later operation.
	if err = parseDone("Remove", answer); isCode(err, codeNotFound) || isCode(err, codeNotReady) {
		return nil
	}
	return err
}

// Close ends running operations.
func (f *Fabric) Close() error {
	f.once.Do(func() {
		f.stop()
		f.master.close()
		f.metadata.client.CloseIdleConnections()
	})
	return nil
}

// do runs one operation, after the master's version was checked. It converts errors to those of package fabric.
func (f *Fabric) do(ctx context.Context, verb, key string, op func(context.Context, string) error) error {
	err := fault.Begin(ctx, key)
	if err == nil {
		closing, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(f.ctx, cancel)
		if err = f.check(closing); err == nil {
			err = kind(op(closing, f.config.Key.Name(key)))
		}
		if f.ctx.Err() != nil && err != nil {
			err = fmt.Errorf("%w: closed", fault.ErrUnavailable)
		}
		stop()
		cancel()
	}
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // the cause is a cancellation of the derived context
	}
	return fmt.Errorf("%s: %s: %w", Label, verb, err)
}

// check refuses a closed fabric, and a master of another version.
func (f *Fabric) check(ctx context.Context) error {
	if f.ctx.Err() != nil {
		return fmt.Errorf("%w: closed", fault.ErrUnavailable)
	}
	f.master.mu.Lock()
	checked := f.master.checked
	f.master.mu.Unlock()
	if checked {
		return nil
	}
	answer, err := f.master.call(ctx, "ServiceReady", nil)
	if err != nil {
		return err
	}
	version, err := parseReady(answer)
	if err != nil {
		return kind(err)
	}
	if version != masterVersion {
		return fmt.Errorf("%w: master %s has version %.40q, want %q, which 0.3.13 and 0.3.14 of mooncake_master answer",
			fault.ErrUnavailable, f.config.Master, version, masterVersion)
	}
	f.master.mu.Lock()
	f.master.checked = true
	f.master.mu.Unlock()
	return nil
}

// kind converts an error of the master to one of package fabric.
func kind(err error) error {
	var code codeError
	if !errors.As(err, &code) {
		return err
	}
	if code == codeNotFound || code == codeNotReady {
		return fmt.Errorf("%w: %w", fault.ErrNotFound, err)
	}
	return fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
}
