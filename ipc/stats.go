package ipc

import (
	"slices"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Counters are what the Loop counts, for any goroutine to read. Those without a note only grow.
//
// Invariant: between two turns of the Loop Accepted is the sum of Closed and Sessions. Refused connections are in none.
type Counters struct {
	Accepted   atomic.Uint64
	Refused    [numRefusals]atomic.Uint64
	Closed     [numCauses]atomic.Uint64
	RxBytes    atomic.Uint64
	TxBytes    atomic.Uint64
	IOErrors   atomic.Uint64
	Frames     atomic.Uint64 // messages and lines of clients
	HTTPOpened atomic.Uint64
	Turns      atomic.Uint64 // of the Loop; stands still while nobody wants anything

	Sessions atomic.Int64 // gauge: open connections, HTTP included
	HTTP     atomic.Int64 // gauge: those of them that net/http serves
	InFlight atomic.Int64 // gauge: requests that were not Done yet
	Stalled  atomic.Int64 // gauge: connections that a Send found Full and that have not read enough since
	RxHeld   atomic.Int64 // gauge: bytes of memory that hold incomplete or waiting input

	protocolErrors [32]atomic.Uint64 // by position in wire.Codes
}

// Stats are the Loop's counters. Safe from any goroutine.
func (l *Loop) Stats() *Counters { return &l.stats }

// RefusedTotal is how many clients got no connection.
func (s *Counters) RefusedTotal() (n uint64) {
	for i := range s.Refused {
		n += s.Refused[i].Load()
	}
	return n
}

// SocketPath is where the Unix socket of the Loop lies.
func (l *Loop) SocketPath() string { return l.lns[0].Path() }

// Info is what a Loop holds at a moment, to find what was left behind.
type Info struct {
	Conns         int // framed, newline and not yet known
	HTTP          int
	InFlight      int // requests that were not Done
	TxQueuedBytes int // output that waits for clients
	TxRingBytes   int // memory that holds it
	RxHeldBytes   int // memory that holds incomplete input
}

// Info counts. Safe from any goroutine; it visits every connection.
func (l *Loop) Info() Info {
	l.mu.Lock()
	conns := make([]*Conn, 0, len(l.conns))
	for _, c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	in := Info{Conns: len(conns), HTTP: int(l.stats.HTTP.Load()), InFlight: int(l.stats.InFlight.Load()), RxHeldBytes: int(l.stats.RxHeld.Load())}
	for _, c := range conns {
		c.mu.Lock()
		in.TxQueuedBytes += c.tx.n
		in.TxRingBytes += len(c.tx.buf)
		c.mu.Unlock()
	}
	return in
}

// countProtocolError counts an error that a client's input caused.
func (s *Counters) countProtocolError(code wire.Code) {
	if i := slices.Index(wire.Codes, code); i >= 0 {
		s.protocolErrors[i].Add(1)
	}
}

// ProtocolErrors is how many errors of a code ipc itself has answered: broken streams, bad requests, ids in use.
func (s *Counters) ProtocolErrors(code wire.Code) uint64 {
	if i := slices.Index(wire.Codes, code); i >= 0 {
		return s.protocolErrors[i].Load()
	}
	return 0
}
