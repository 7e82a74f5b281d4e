// Package connstate is a table in memory that a front and one engine process share: what each connection that the front
// has passed to the engine speaks at the moment, and which requests are in flight on it. The engine writes the table
// with single atomic stores; the front reads it when the engine has ended, to tell the clients in their own protocol.
//
// The table is untrusted input of the front: a broken engine may write anything to it. Get and Requests return values
// within their ranges for any content.
package connstate

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/shm"
)

// Phase is the state of a connection.
type Phase uint8

const (
	// Idle: the engine has read nothing of the connection.
	Idle Phase = iota
	// Framed: the connection speaks frames; Requests has the ids in flight.
	Framed
	// Lines: the connection speaks lines of text; Requests has the id "" while one is answered.
	Lines
	// Resting: an HTTP connection between two requests.
	Resting
	// Reading: a part of an HTTP request was read.
	Reading
	// Asked: an HTTP request is being answered, and nothing of the answer was written.
	Asked
	// Events: the head of a stream of server-sent events was written, and whole events.
	Events
	// Values: as Events, with JSON values on lines (application/x-ndjson).
	Values
	// Partial: a part of an answer was written whose rest only the engine knows.
	Partial

	numPhases
)

// API is the form that an HTTP client expects errors in.
type API uint8

const (
	OpenAI    API = iota
	Responses     // OpenAI's, whose stream has typed events
	Anthropic
	Ollama
	Gemini

	numAPIs
)

// State is the state of one connection.
type State struct {
	Phase   Phase
	API     API
	Chunked bool // with Events and Values: the body has a chunked transfer coding
	Unread  bool // bytes were read that belong to no whole message yet
	Cut     bool // the last write ended inside a frame or an event

	// Question: the request needs no model. It is no use of the model, and does not keep it loaded.
	Question bool
}

func (s State) pack() uint32 {
	v := uint32(s.Phase) | uint32(s.API)<<8
	for i, on := range []bool{s.Chunked, s.Unread, s.Cut, s.Question} {
		if on {
			v |= 1 << (16 + i)
		}
	}
	return v
}

func unpack(v uint32) State {
	s := State{Phase: Phase(v), API: API(v >> 8), Chunked: v&(1<<16) != 0, Unread: v&(1<<17) != 0, Cut: v&(1<<18) != 0,
		Question: v&(1<<19) != 0}
	if s.Phase >= numPhases || s.API >= numAPIs {
		return State{Phase: Partial}
	}
	return s
}

// A connection's word has its state in the low bits, and above them a generation, which changes when a number gets
// another connection: what the engine still says of the connection before is left out.
const (
	stateBits  = 1<<20 - 1
	generation = 1 << 20
)

// MaxIDBytes is the longest id that the table holds; the protocol's ids are no longer.
const MaxIDBytes = 128

const (
	magic       = 0x756d6131 // "uma1"
	headerBytes = 64
	recordBytes = 160
)

// record is a request in flight. Its owner is written last when it begins, and first when it ends.
type record struct {
	owner  atomic.Uint32 // the connection + 1; 0 = free
	length uint32
	id     [MaxIDBytes]byte
	_      [recordBytes - 8 - MaxIDBytes]byte
}

type header struct {
	magic, conns, requests uint32
	begun                  atomic.Uint32 // requests, since the start
	held                   atomic.Int64  // bytes in the engine's host tier
	evicted                atomic.Uint64 // parts that made room there for others, since the start
}

// Table is the shared memory. The zero value is not usable.
type Table struct {
	file  *os.File
	mem   []byte
	conns []atomic.Uint32
	reqs  []record

	mu   sync.Mutex
	free []int32 // Invariant: the records without an owner; the engine's side alone
}

// Size bounds of a table.
const (
	MaxConns    = 1 << 20
	MaxRequests = 1 << 16
)

// Create makes a table for conns connections and requests requests in flight. Close frees it.
func Create(conns, requests int) (*Table, error) {
	if conns < 1 || conns > MaxConns || requests < 1 || requests > MaxRequests {
		return nil, fmt.Errorf("create table of connections: %d connections, %d requests: out of range", conns,
			requests)
	}
	f, err := shm.New("uma-connections", int64(size(conns, requests)))
	if err != nil {
		return nil, fmt.Errorf("create table of connections: %w", err)
	}
	t, err := mapTable(f, conns, requests)
	if err != nil {
		f.Close()
		return nil, err
	}
	h := t.head()
	h.magic, h.conns, h.requests = magic, uint32(conns), uint32(requests)
	return t, nil
}

// Open maps the table that another process has created. It takes over f, also when it fails.
func Open(f *os.File) (*Table, error) {
	fail := func(err error) (*Table, error) {
		f.Close()
		return nil, fmt.Errorf("open table of connections: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	if st.Size() < headerBytes {
		return fail(errors.New("it is too short"))
	}
	head, err := unix.Mmap(int(f.Fd()), 0, headerBytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fail(err)
	}
	h := (*header)(unsafe.Pointer(&head[0]))
	conns, requests, known := int(h.conns), int(h.requests), h.magic == magic
	_ = unix.Munmap(head)
	if !known || conns < 1 || conns > MaxConns || requests < 1 || requests > MaxRequests ||
		st.Size() != int64(size(conns, requests)) {
		return fail(errors.New("its header is wrong"))
	}
	t, err := mapTable(f, conns, requests)
	if err != nil {
		f.Close()
		return nil, err
	}
	for i := len(t.reqs) - 1; i >= 0; i-- {
		t.free = append(t.free, int32(i))
	}
	return t, nil
}

func size(conns, requests int) int {
	return headerBytes + (conns*4+63)&^63 + requests*recordBytes
}

func mapTable(f *os.File, conns, requests int) (*Table, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, size(conns, requests), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map table of connections: %w", err)
	}
	return &Table{
		file: f, mem: mem,
		conns: unsafe.Slice((*atomic.Uint32)(unsafe.Pointer(&mem[headerBytes])), conns),
		reqs:  unsafe.Slice((*record)(unsafe.Pointer(&mem[headerBytes+(conns*4+63)&^63])), requests),
	}, nil
}

func (t *Table) head() *header { return (*header)(unsafe.Pointer(&t.mem[0])) }

// Begun counts requests; it changes when one begins.
func (t *Table) Begun() uint32 { return t.head().begun.Load() }

// HostTier returns the bytes that the engine keeps of evicted prefixes, and how many parts it has evicted in turn.
func (t *Table) HostTier() (held int64, evicted uint64) {
	h := t.head()
	return max(h.held.Load(), 0), h.evicted.Load()
}

// SetHostTier writes what HostTier returns. Only the engine's side calls it.
func (t *Table) SetHostTier(held int64, evicted uint64) {
	h := t.head()
	h.held.Store(held)
	h.evicted.Store(evicted)
}

// File returns the memory as a file, to be inherited by the other process.
func (t *Table) File() *os.File { return t.file }

// Close unmaps the table. Its Slots must not be used any more.
func (t *Table) Close() error {
	t.conns, t.reqs = nil, nil
	return errors.Join(unix.Munmap(t.mem), t.file.Close())
}

// Conns returns the number of connections that the table holds.
func (t *Table) Conns() int { return len(t.conns) }

// Get returns the state of a connection; Idle for one that is out of range.
func (t *Table) Get(conn uint32) State {
	if int(conn) >= len(t.conns) {
		return State{}
	}
	return unpack(t.conns[conn].Load())
}

// Reset makes a connection idle. The front calls it before it passes the connection.
func (t *Table) Reset(conn uint32) {
	word := &t.conns[conn]
	word.Store(following(word.Load()))
}

// following returns the word of the next generation: of an idle connection.
func following(word uint32) uint32 { return (word + generation) &^ (generation - 1) }

// Requests returns the ids of the requests in flight, by connection.
func (t *Table) Requests() map[uint32][]string {
	m := map[uint32][]string{}
	for i := range t.reqs {
		if conn, id, ok := t.reqs[i].get(); ok && int(conn) < len(t.conns) {
			m[conn] = append(m[conn], id)
		}
	}
	return m
}

func (r *record) get() (conn uint32, id string, ok bool) {
	owner := r.owner.Load()
	if owner == 0 {
		return 0, "", false
	}
	n := min(r.length, MaxIDBytes)
	return owner - 1, string(r.id[:n]), true
}

// Busy reports whether a request is in flight on a connection.
func (t *Table) Busy(conn uint32) bool {
	switch t.Get(conn).Phase {
	case Idle, Resting:
		return false
	case Framed, Lines:
		for i := range t.reqs {
			if t.reqs[i].owner.Load() == conn+1 {
				return true
			}
		}
		return false
	}
	return true
}

// InFlight returns the number of connections and requests that wait for the model's answer, or send their request.
func (t *Table) InFlight() int { return t.count(false) }

// Answering is InFlight without the connections whose request has not arrived whole: it may be a question.
func (t *Table) Answering() int { return t.count(true) }

func (t *Table) count(whole bool) (n int) {
	for i := range t.conns {
		switch st := unpack(t.conns[i].Load()); st.Phase {
		case Idle, Resting, Framed, Lines:
		case Reading:
			if !whole {
				n++
			}
		default:
			if !st.Question {
				n++
			}
		}
	}
	for i := range t.reqs {
		if t.reqs[i].owner.Load() != 0 {
			n++
		}
	}
	return n
}

// Slot is the engine's side of one connection. A nil Slot does nothing: the connection is of a process without a front.
// Safe from any goroutine.
type Slot struct {
	t    *Table
	conn uint32
	gen  uint32 // of the word, as long as the number is this connection's
}

// Slot returns the engine's side of a connection that the front has passed.
func (t *Table) Slot(conn uint32) *Slot {
	return &Slot{t, conn, t.conns[conn].Load() &^ (generation - 1)}
}

// Conn returns the connection's number.
func (s *Slot) Conn() uint32 { return s.conn }

// Set changes the phase; what was said of unread and cut bytes is over.
func (s *Slot) Set(st State) {
	if s != nil && s.change(0, st.pack()) && st.Phase == Asked && !st.Question {
		s.t.head().begun.Add(1)
	}
}

// change keeps some bits of the state and sets others. false: the connection has been released.
func (s *Slot) change(keep, set uint32) bool {
	word := &s.t.conns[s.conn]
	for {
		old := word.Load()
		if old&^(generation-1) != s.gen {
			return false
		}
		if word.CompareAndSwap(old, s.gen|old&keep|set) {
			return true
		}
	}
}

// Release ends what the connection does: it is closed, or another process has it. Nothing that is set afterwards
// counts.
func (s *Slot) Release() {
	if s == nil {
		return
	}
	word := &s.t.conns[s.conn]
	for {
		old := word.Load()
		if old&^(generation-1) != s.gen || word.CompareAndSwap(old, following(old)|State{Phase: Resting}.pack()) {
			return
		}
	}
}

// Get returns the State that was set last; the zero State for a nil Slot.
func (s *Slot) Get() State {
	if s == nil {
		return State{}
	}
	return s.t.Get(s.conn)
}

// Unread says whether bytes were read that belong to no whole message.
func (s *Slot) Unread(on bool) { s.bit(1<<17, on) }

// Cut says whether what was written ends inside a frame or an event.
func (s *Slot) Cut(on bool) { s.bit(1<<18, on) }

func (s *Slot) bit(mask uint32, on bool) {
	switch {
	case s == nil:
	case on:
		s.change(stateBits, mask)
	default:
		s.change(stateBits&^mask, 0)
	}
}

// Begin enters a request as in flight and returns the number for End; -1 when the table is full or s is nil.
func (s *Slot) Begin(id string) int32 {
	if s == nil || len(id) > MaxIDBytes {
		return -1
	}
	s.t.head().begun.Add(1)
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	n := len(s.t.free)
	if n == 0 {
		return -1
	}
	i := s.t.free[n-1]
	s.t.free = s.t.free[:n-1]
	r := &s.t.reqs[i]
	r.length = uint32(copy(r.id[:], id))
	r.owner.Store(s.conn + 1)
	return i
}

// End takes out what Begin entered.
func (s *Slot) End(i int32) {
	if s == nil || i < 0 {
		return
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.reqs[i].owner.Store(0)
	s.t.free = append(s.t.free, i)
}
