// Package memory is the fabric "memory": a map in this process. Thoughts are stored in it where there is no other
// fabric, and it tests the whole path, including frames, without a server. It says nothing about the speed of a store
// on another machine, hence the label.
package memory

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

const (
	// Label is the fabric's name in metrics.
	Label = "memory"
	// SynthLabel is its name where it stands for NIXL, as in Meridian's ADR-0006: no transfer between machines is
	// measured with it.
	SynthLabel = "nixl-synth"
	// DefaultCapBytes is the default cap of Open in package fabric.
	DefaultCapBytes = 256 << 20
	// entryBytes is the approximate cost of a value besides its bytes and its key.
	entryBytes = 160
)

// Fabric is a map with a cap in bytes that forgets the least recently used value first.
type Fabric struct {
	label    string
	mu       sync.Mutex
	capBytes int64
	closed   bool
	values   map[string]*list.Element // of *entry
	order    *list.List               // most recently used first
	// Invariant: bytes is the sum of entry.cost over order, and never above capBytes.
	bytes int64
}

type entry struct {
	key   string
	value []byte
}

func (e *entry) cost() int64 { return int64(len(e.value)+len(e.key)) + entryBytes }

// New makes a fabric that holds at most capBytes, including keys and overhead. The label is Label or SynthLabel.
func New(label string, capBytes int64) (*Fabric, error) {
	if capBytes <= 0 {
		return nil, fmt.Errorf("%s: the cap is %d bytes; it must be at least 1", label, capBytes)
	}
	return &Fabric{label: label, capBytes: capBytes, values: map[string]*list.Element{}, order: list.New()}, nil
}

// Label returns the label that New was given.
func (f *Fabric) Label() string { return f.label }

// begin checks key and context and locks f; on nil the caller must unlock.
func (f *Fabric) begin(ctx context.Context, verb, key string) error {
	if err := fault.Begin(ctx, key); err != nil {
		return fmt.Errorf("%s: %s: %w", f.label, verb, err)
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return fmt.Errorf("%s: %s: %w: closed", f.label, verb, fault.ErrUnavailable)
	}
	return nil
}

// Push stores a copy of value and makes room for it.
func (f *Fabric) Push(ctx context.Context, key string, value []byte) error {
	e := &entry{key, value}
	f.mu.Lock()
	most := f.capBytes
	f.mu.Unlock()
	if c := e.cost(); c > most {
		return fmt.Errorf("%s: push: %w: it takes %d bytes, the cap is %d", f.label, fault.ErrTooLarge, c, most)
	}
	e.value = append(make([]byte, 0, len(value)), value...) // copy before taking the lock
	if err := f.begin(ctx, "push", key); err != nil {
		return err
	}
	defer f.mu.Unlock()
	f.forget(f.values[key])
	f.makeRoom(e.cost())
	f.values[key] = f.order.PushFront(e)
	f.bytes += e.cost()
	return nil
}

// makeRoom forgets the oldest values until need more bytes fit, or none is left.
func (f *Fabric) makeRoom(need int64) {
	for f.bytes+need > f.capBytes && f.order.Len() > 0 {
		f.forget(f.order.Back())
	}
}

// Resize gives the map another cap in bytes, at least 1, and forgets what exceeds it.
func (f *Fabric) Resize(capBytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capBytes = max(capBytes, 1)
	f.makeRoom(0)
}

func (f *Fabric) forget(at *list.Element) {
	if at == nil {
		return
	}
	e := f.order.Remove(at).(*entry)
	delete(f.values, e.key)
	f.bytes -= e.cost()
}

// Pull returns a copy of the value.
func (f *Fabric) Pull(ctx context.Context, key string, dst []byte) ([]byte, error) {
	if err := f.begin(ctx, "pull", key); err != nil {
		return nil, err
	}
	at := f.values[key]
	if at == nil {
		f.mu.Unlock()
		return nil, fmt.Errorf("%s: pull: %w", f.label, fault.ErrNotFound)
	}
	f.order.MoveToFront(at)
	value := at.Value.(*entry).value // never changes after Push, so read it without the lock
	f.mu.Unlock()
	dst = fault.Room(dst, len(value))
	copy(dst, value)
	return dst, nil
}

// Renew marks the value as used.
func (f *Fabric) Renew(ctx context.Context, key string) error {
	if err := f.begin(ctx, "renew", key); err != nil {
		return err
	}
	defer f.mu.Unlock()
	at := f.values[key]
	if at == nil {
		return fmt.Errorf("%s: renew: %w", f.label, fault.ErrNotFound)
	}
	f.order.MoveToFront(at)
	return nil
}

// TTL returns 0: a value lives until its room is needed.
func (f *Fabric) TTL() time.Duration { return 0 }

// Delete removes the value.
func (f *Fabric) Delete(ctx context.Context, key string) error {
	if err := f.begin(ctx, "delete", key); err != nil {
		return err
	}
	defer f.mu.Unlock()
	f.forget(f.values[key])
	return nil
}

// Bytes returns the size of the values, including keys and overhead.
func (f *Fabric) Bytes() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.bytes }

// Len returns the number of values.
func (f *Fabric) Len() int { f.mu.Lock(); defer f.mu.Unlock(); return f.order.Len() }

// Close frees every value.
func (f *Fabric) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.values, f.bytes = true, nil, 0
	f.order.Init()
	return nil
}

// check verifies the invariants; for tests.
func (f *Fabric) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sum int64
	for at := f.order.Front(); at != nil; at = at.Next() {
		e := at.Value.(*entry)
		sum += e.cost()
		if f.values[e.key] != at {
			return fmt.Errorf("%q is in the order but not in the map", e.key)
		}
	}
	if sum != f.bytes || f.bytes > f.capBytes || len(f.values) != f.order.Len() {
		return fmt.Errorf("%d bytes counted, %d held, cap %d; %d keys, %d in order", f.bytes, sum, f.capBytes,
			len(f.values), f.order.Len())
	}
	return nil
}
