package ipc

import (
	"slices"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Counters are the Loop's counters, which any goroutine may read. They only grow, except gauges.
//
// Invariant: between two turns of the Loop Accepted is the sum of Closed and Sessions; refused connections are in
// neither.
type Counters struct {
	Accepted   atomic.Uint64
	Refused    [numRefusals]atomic.Uint64
	Closed     [numCauses]atomic.Uint64
	RxBytes    atomic.Uint64
	TxBytes    atomic.Uint64
	IOErrors   atomic.Uint64
	Frames     atomic.Uint64 // messages and lines of clients
	HTTPOpened atomic.Uint64
	Passed     atomic.Uint64 // connections given to engine processes; each time counts
	HandedBack atomic.Uint64 // of those: came back, for another process or because theirs ends
	Turns      atomic.Uint64 // of the Loop; constant while no client sends

	Sessions atomic.Int64 // gauge: open connections, HTTP included
	HTTP     atomic.Int64 // gauge: open connections served by net/http
	InFlight atomic.Int64 // gauge: requests without Done
	Stalled  atomic.Int64 // gauge: connections with a full ring, whose client has not read enough since
	RxHeld   atomic.Int64 // gauge: bytes of incomplete or waiting input

	protocolErrors [32]atomic.Uint64 // by position in wire.Codes
}

// Stats returns the Loop's counters. Safe from any goroutine.
func (l *Loop) Stats() *Counters { return &l.stats }

// RefusedTotal returns the number of refused connections.
func (s *Counters) RefusedTotal() (n uint64) {
	for i := range s.Refused {
		n += s.Refused[i].Load()
	}
	return n
}

// SocketPath returns the path of the Loop's Unix socket.
func (l *Loop) SocketPath() string { return l.lns[0].Path() }

// Info is a snapshot of the Loop's connections and memory, to find leaks.
type Info struct {
	Conns         int // framed, newline and unknown protocol
	HTTP          int
	InFlight      int // requests without Done
	TxQueuedBytes int // output that waits for clients
	TxRingBytes   int // memory of the send rings
	RxHeldBytes   int // memory of incomplete input
}

// Info returns a snapshot. Safe from any goroutine; it visits every connection.
func (l *Loop) Info() Info {
	l.mu.Lock()
	conns := make([]*Conn, 0, len(l.conns))
	for _, c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	in := Info{Conns: len(conns), HTTP: int(l.stats.HTTP.Load()), InFlight: int(l.stats.InFlight.Load()),
		RxHeldBytes: int(l.stats.RxHeld.Load())}
	for _, c := range conns {
		c.mu.Lock()
		in.TxQueuedBytes += c.tx.Len()
		in.TxRingBytes += c.tx.Allocated()
		c.mu.Unlock()
	}
	return in
}

// MessageErrors are the codes of the errors that a client's input causes before it is a request.
var MessageErrors = []wire.Code{wire.FrameTooLarge, wire.InvalidJSON, wire.BadRequest, wire.DuplicateID, wire.Timeout,
	wire.PromptTooLarge}

// countProtocolError counts an error that a client's input caused.
func (s *Counters) countProtocolError(code wire.Code) {
	if i := slices.Index(wire.Codes, code); i >= 0 {
		s.protocolErrors[i].Add(1)
	}
}

// ProtocolErrors returns the number of errors of a code that ipc has answered: broken streams, bad requests, ids in
// use.
func (s *Counters) ProtocolErrors(code wire.Code) uint64 {
	if i := slices.Index(wire.Codes, code); i >= 0 {
		return s.protocolErrors[i].Load()
	}
	return 0
}
