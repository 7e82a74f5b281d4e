package snapshot

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/internal/invariants"
)

// Buffer is the memory of one part, reference-counted. It is outside the Go heap: the collector lets as much garbage
// gather as there is live heap, so gigabytes of snapshots on the heap would cost as much again in garbage.
//
// A Buffer begins with one reference. A holder of a reference may read; only the holder of the sole first reference may
// write.
type Buffer struct {
	pool  *bufferPool
	mem   []byte // the whole mapping
	bytes []byte // the part's bytes, inside mem
	refs  atomic.Int32
}

// Bytes returns the memory. It is valid until the caller's reference is released.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Truncate keeps the first n bytes, for an engine that wrote fewer than it announced.
func (b *Buffer) Truncate(n int) { b.bytes = b.bytes[:n] }

// Share returns b with another reference, which its holder releases. The caller must hold one.
func (b *Buffer) Share() *Buffer { return b.ref() }

func (b *Buffer) ref() *Buffer {
	if b.refs.Add(1) <= 1 {
		panic("snapshot: buffer used after its release")
	}
	return b
}

// Release drops a reference. It is safe from any goroutine.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.pool.put(b.mem)
		b.mem, b.bytes = nil, nil
	case n < 0:
		panic("snapshot: buffer released twice")
	}
}

// size returns the buffer's size in memory, in bytes.
func (b *Buffer) size() int64 { return int64(len(b.mem)) }

// bufferPool keeps released memory for the next part: fresh memory costs a page fault per 4 KiB, about as much as
// copying the cells into it.
//
// A goroutine keeps a few pieces of the sizes in use ready and touched. Where a hypervisor provides memory at first
// touch, a fresh part of 6 MiB cost the decode loop 17 ms and a touched one 1.7 ms, copy included.
type bufferPool struct {
	order chan int // sizes to allocate in advance
	done  chan struct{}

	mu struct {
		sync.Mutex
		cap    int64            // most bytes to keep idle
		idle   map[int][][]byte // by length
		bytes  int64            // of idle
		closed bool             // order is closed
	}
}

const (
	readyPieces  = 2       // pieces of each size to keep ready
	readyMinimum = 1 << 20 // bytes; smaller pieces are not worth waking the goroutine
)

func newPool(cap int64) *bufferPool {
	p := &bufferPool{order: make(chan int, 4), done: make(chan struct{})}
	p.mu.cap = cap
	p.mu.idle = map[int][][]byte{}
	go func() {
		defer close(p.done)
		Background()
		for size := range p.order {
			for p.lacks(size) {
				mem, err := allocate(size)
				if err != nil {
					break // get will return the error
				}
				for i := 0; i < len(mem); i += pageBytes {
					mem[i] = 0
				}
				p.put(mem)
			}
		}
	}()
	return p
}

// lacks reports whether another piece of a size should be allocated in advance.
func (p *bufferPool) lacks(size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.closed && len(p.mu.idle[size]) < readyPieces && p.mu.bytes+int64(size) <= p.mu.cap
}

const pageBytes = 4096

// class rounds up to one of eight sizes per doubling. At most 1/8 is lost, and only as address space: pages that are
// never written take no memory.
func class(n int) int {
	n = max(n, pageBytes)
	step := max(1<<(bits.Len(uint(n-1))-4), pageBytes)
	return (n + step - 1) / step * step
}

func (p *bufferPool) get(n int) (*Buffer, error) {
	size := class(n)
	p.mu.Lock()
	var mem []byte
	if l := p.mu.idle[size]; len(l) > 0 {
		mem = l[len(l)-1]
		p.mu.idle[size] = l[:len(l)-1]
		p.mu.bytes -= int64(size)
	}
	if size >= readyMinimum && len(p.mu.idle[size]) < readyPieces && !p.mu.closed {
		select {
		case p.order <- size:
		default: // the goroutine is busy; a later get asks again
		}
	}
	p.mu.Unlock()
	if mem == nil {
		var err error
		if mem, err = allocate(size); err != nil {
			return nil, err
		}
	}
	b := &Buffer{pool: p, mem: mem, bytes: mem[:n:n]}
	b.refs.Store(1)
	return b, nil
}

func (p *bufferPool) put(mem []byte) {
	if invariants.Enabled {
		for i := 0; i < len(mem); i += 61 {
			mem[i] = 0xdb // makes reads without a reference visible
		}
	}
	p.mu.Lock()
	if keep := p.mu.bytes+int64(len(mem)) <= p.mu.cap; keep {
		p.mu.idle[len(mem)] = append(p.mu.idle[len(mem)], mem)
		p.mu.bytes += int64(len(mem))
		mem = nil
	}
	p.mu.Unlock()
	if mem != nil {
		free(mem)
	}
}

// resize gives the idle memory another cap, in bytes, and frees what exceeds it.
func (p *bufferPool) resize(cap int64) {
	p.mu.Lock()
	var over [][]byte
	if p.mu.cap = cap; p.mu.closed {
		p.mu.cap = 0
	}
	for size, l := range p.mu.idle {
		for len(l) > 0 && p.mu.bytes > p.mu.cap {
			over, l = append(over, l[len(l)-1]), l[:len(l)-1]
			p.mu.bytes -= int64(size)
		}
		p.mu.idle[size] = l
	}
	p.mu.Unlock()
	for _, mem := range over {
		free(mem)
	}
}

// drain frees the idle memory and stops the goroutine; later releases free their memory at once. Call it once.
func (p *bufferPool) drain() {
	p.mu.Lock()
	idle := p.mu.idle
	p.mu.idle, p.mu.bytes, p.mu.cap, p.mu.closed = map[int][][]byte{}, 0, 0, true
	close(p.order)
	p.mu.Unlock()
	<-p.done
	for _, l := range idle {
		for _, mem := range l {
			free(mem)
		}
	}
}

func (p *bufferPool) idleBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.bytes
}
