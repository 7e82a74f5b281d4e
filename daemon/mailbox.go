package daemon

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/runtime"
)

// commandKind is what another goroutine asks of the decode loop.
type commandKind uint8

const (
	cmdArrive   commandKind = iota // req is ready to be computed
	cmdCancel                      // req's client cancelled or went away
	cmdWritable                    // conn has room again
	cmdDrain                       // take nothing new; stop when the running requests are done
	cmdStop                        // stop now
	cmdEndThink                    // req's client has seen enough thinking
	cmdHistory                     // tokens is what the next turn of req begins with; nil: not known
	cmdStored                      // the part that restore stored waits for may have come
	cmdAsk                         // ask wants to look at what the loop owns, between two steps
)

// command crosses to the decode loop by value.
type command struct {
	kind   commandKind
	req    *request
	conn   *ipc.Conn
	tokens []runtime.Token
	stored core.RestoreID
	ask    func(*loop, time.Time)
}

// mailbox carries commands to the decode loop: many writers, one reader. It is bounded by what feeds it: a
// request arrives only while fewer than twice --max-queue + --parallel are inside (waitroom counts them), each can be
// cancelled once and end its thinking once, each connection be reported writable once per stall, and a restore be
// reported once per part.
//
// pending lets the loop look between two steps without taking the lock; ring holds what came meanwhile and is
// swapped with the loop's empty one, so that nobody allocates in steady state.
type mailbox struct {
	pending atomic.Bool
	wake    chan struct{} // capacity 1: a token here means "look"
	mu      sync.Mutex
	items   []command
	closed  bool // the loop has ended and takes nothing any more
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

// put hands c over and wakes the loop if it sleeps; false when the loop has ended. Safe from any goroutine; never
// blocks on the loop.
func (m *mailbox) put(c command) bool {
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

// close ends the mailbox and returns what nobody had taken. Loop only.
func (m *mailbox) close() []command {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return m.items
}

// take swaps the filled list for the caller's empty one. Loop only.
func (m *mailbox) take(empty []command) []command {
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

// wait sleeps until something was put or d passed (d ≤ 0: no limit). Loop only. timer is the loop's own.
func (m *mailbox) wait(d time.Duration, timer *time.Timer) {
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
