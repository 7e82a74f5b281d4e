// Package ring has the queue of bytes that a connection sends from. It has no lock: its owner does.
package ring

// Ring is a byte queue. Bytes returned by First stay in place until Consume, even if Push grows the ring, so that one
// goroutine can write them without the lock under which another appends.
//
// Invariant: 0 ≤ n ≤ len(buf), head < len(buf) unless buf is nil; len(buf) is 0 or a power of two.
type Ring struct {
	buf  []byte
	head int // index of the first byte
	n    int // bytes queued
}

// minRing is a ring's first allocation in bytes: about 20 token events.
const minRing = 4 << 10

// Len returns the number of queued bytes.
func (r *Ring) Len() int { return r.n }

// Allocated returns the memory of the queue in bytes.
func (r *Ring) Allocated() int { return len(r.buf) }

// Push appends b, growing as needed.
func (r *Ring) Push(b []byte) {
	if need := r.n + len(b); need > len(r.buf) {
		size := max(len(r.buf), minRing)
		for size < need {
			size *= 2
		}
		grown := make([]byte, size)
		k := copy(grown, r.First())
		copy(grown[k:], r.buf[:r.n-k])
		r.buf, r.head = grown, 0
	}
	tail := (r.head + r.n) & (len(r.buf) - 1)
	k := copy(r.buf[tail:], b)
	copy(r.buf, b[k:])
	r.n += len(b)
}

// First returns the longest contiguous run of queued bytes, from the oldest on.
func (r *Ring) First() []byte { return r.buf[r.head:min(r.head+r.n, len(r.buf))] }

// Consume drops the k oldest bytes.
func (r *Ring) Consume(k int) {
	r.n -= k
	if r.n == 0 {
		r.head = 0
		return
	}
	r.head = (r.head + k) & (len(r.buf) - 1)
}

// Check panics if the invariant is broken. Called in tests and with the build tag "invariants".
func (r *Ring) Check() {
	size := len(r.buf)
	if r.n < 0 || r.n > size || r.head < 0 || (size > 0 && r.head >= size) || size&(size-1) != 0 {
		panic("ipc: broken ring")
	}
}
