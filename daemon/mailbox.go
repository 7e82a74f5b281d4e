package daemon

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/runtime"
)

// commandKind is the kind of a command to the decode loop.
type commandKind uint8

const (
	cmdArrive    commandKind = iota // req is ready to be computed
	cmdCancel                       // req's client cancelled or disconnected
	cmdWritable                     // conn's send ring has room again
	cmdDrain                        // refuse new requests; stop when the running ones are done
	cmdStop                         // stop now
	cmdEndThink                     // req's client ends the thinking
	cmdHistory                      // tokens is the prefix of req's next turn; nil: unknown
	cmdStored                       // the next part of restore stored may be ready
	cmdOffloaded                    // the tier has the thought of request offloaded
	cmdOffer                        // there is something to offer to the fabric
	cmdAsk                          // run ask between two steps
	cmdFit                          // likewise, also if the loop ends: intake waits for it
)

// command crosses to the decode loop by value.
type command struct {
	kind      commandKind
	req       *request
	conn      ipc.Client
	tokens    []runtime.Token
	stored    core.RestoreID
	offloaded core.ID
	tier      core.Tier // that has it
	ask       func(*loop, time.Time)
}

// mailbox carries commands to the decode loop: many writers, one reader. Its senders bound it: the waitroom admits
// fewer than twice --max-queue + --parallel requests, each is cancelled once and ends its thinking once, a connection
// is reported writable once per stall, a restore once per part, and the fabric once per answer.
//
// pending lets the loop poll between two steps without the lock. The loop swaps items with an empty slice, so that the
// steady state allocates nothing.
type mailbox struct {
	pending atomic.Bool
	wake    chan struct{} // capacity 1; wakes the sleeping loop
	mu      sync.Mutex
	items   []command
	closed  bool // the loop has ended
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

// put appends c and wakes the loop if it sleeps. It returns false when the loop has ended. Safe from any goroutine;
// never waits for the loop.
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

// close ends the mailbox and returns the commands not taken. Loop only.
func (m *mailbox) close() []command {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return m.items
}

// arriving returns the requests that the loop has not taken yet.
func (m *mailbox) arriving() (list []*request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.items {
		if m.items[i].kind == cmdArrive {
			list = append(list, m.items[i].req)
		}
	}
	return list
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

// wait sleeps until a command is put or d has passed (d ≤ 0: no limit). Loop only; timer belongs to the loop.
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
