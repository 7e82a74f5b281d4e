// Package mailbox is the way of other goroutines to the decode loop.
package mailbox

import (
	"sync"
	"sync/atomic"
	"time"
)

// Mailbox carries commands of a kind C by value: many writers, one reader, which is the decode loop. Its senders bound
// it.
//
// pending lets the loop poll between two steps without the lock. The loop swaps items with an empty slice, so that the
// steady state allocates nothing.
type Mailbox[C any] struct {
	pending atomic.Bool
	wake    chan struct{} // capacity 1; wakes the sleeping loop
	mu      sync.Mutex
	items   []C
	closed  bool // the loop has ended
}

// New returns an empty mailbox.
func New[C any]() *Mailbox[C] { return &Mailbox[C]{wake: make(chan struct{}, 1)} }

// Put appends c and wakes the loop if it sleeps. It returns false when the loop has ended. Safe from any goroutine;
// never waits for the loop.
func (m *Mailbox[C]) Put(c C) bool {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	m.items = append(m.items, c)
	m.mu.Unlock()
	if !m.pending.Swap(true) {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// Close ends the mailbox and returns the commands not taken. Loop only.
func (m *Mailbox[C]) Close() []C {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return m.items
}

// Each calls f with each command that was not taken. Safe from any goroutine; f must not use the mailbox.
func (m *Mailbox[C]) Each(f func(*C)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.items {
		f(&m.items[i])
	}
}

// Take swaps the filled list for the caller's empty one. Loop only.
func (m *Mailbox[C]) Take(empty []C) []C {
	if !m.pending.Load() {
		return empty[:0]
	}
	m.pending.Store(false)
	m.mu.Lock()
	full := m.items
	m.items = empty[:0]
	m.mu.Unlock()
	return full
}

// Wait sleeps until a command is put or d has passed (d ≤ 0: no limit). Loop only; timer belongs to the loop.
func (m *Mailbox[C]) Wait(d time.Duration, timer *time.Timer) {
	if m.pending.Load() {
		return
	}
	if d <= 0 {
		<-m.wake
		return
	}
	timer.Reset(d)
	select {
	case <-m.wake:
	case <-timer.C:
	}
	timer.Stop()
}
