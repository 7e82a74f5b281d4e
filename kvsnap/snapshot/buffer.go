package snapshot

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/internal/invariants"
)

// Buffer is the bytes of one part, reference-counted. They lie outside the Go heap: gigabytes of snapshots on it would
// let as much garbage gather before the next collection, since the collector's pace follows the live heap.
//
// A Buffer begins with one reference. Who holds one may read; only who has the single first one may write.
type Buffer struct {
	pool  *bufferPool
	mem   []byte // the whole mapping
	bytes []byte // the part's bytes, inside mem
	refs  atomic.Int32
}

// Bytes is the memory, valid as long as the reference is held.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Truncate keeps the first n bytes: the engine wrote fewer than it announced.
func (b *Buffer) Truncate(n int) { b.bytes = b.bytes[:n] }

func (b *Buffer) ref() *Buffer {
	if b.refs.Add(1) <= 1 {
		panic("snapshot: buffer used after its release")
	}
	return b
}

// Release gives the reference back. Safe from any goroutine.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.pool.put(b.mem)
		b.mem, b.bytes = nil, nil
	case n < 0:
		panic("snapshot: buffer released twice")
	}
}

// held is what the buffer takes from memory, in bytes.
func (b *Buffer) held() int64 { return int64(len(b.mem)) }

// bufferPool keeps released memory for the next part: fresh memory costs a page fault per 4 KiB, about as much as
// copying the cells into it.
//
// A goroutine of its own keeps a few pieces of the sizes in use ready and touched: where a hypervisor hands out memory
// at first touch, a fresh part of 6 MiB was measured to cost the decode loop 17 ms, a warm one 1.7 ms, copy included.
type bufferPool struct {
	order chan int // sizes to get ready
	done  chan struct{}

	mu struct {
		sync.Mutex
		cap    int64            // bytes kept idle at most
		idle   map[int][][]byte // by length
		bytes  int64            // of idle
		closed bool             // order is closed
	}
}

const (
	readyPieces  = 2       // of a size, kept ready
	readyMinimum = 1 << 20 // bytes; smaller pieces are not worth waking somebody
)

func newPool(cap int64) *bufferPool {
	p := &bufferPool{order: make(chan int, 4), done: make(chan struct{})}
	p.mu.cap = cap
	p.mu.idle = map[int][][]byte{}
	go func() {
		defer close(p.done)
		background()
		for size := range p.order {
			for p.lacks(size) {
				mem, err := allocate(size)
				if err != nil {
					break // the one who needs it will hear of it
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

// lacks reports whether another piece of a size should be got ready.
func (p *bufferPool) lacks(size int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.closed && len(p.mu.idle[size]) < readyPieces && p.mu.bytes+int64(size) <= p.mu.cap
}

const pageBytes = 4096

// class rounds up to one of eight sizes per doubling: at most 1/8 is lost, and only as addresses, since pages that are
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
		default: // it is busy and will be asked again
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
			mem[i] = 0xdb // a reader without a reference shall notice
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

// drain frees what is idle, and from now on everything that is released. Once only.
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
