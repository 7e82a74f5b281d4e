package ipc

// ring is a byte queue. Bytes returned by first stay in place until consume, even if push grows the ring, so that one
// goroutine can write them without the lock under which another appends.
//
// Invariant: 0 ≤ n ≤ len(buf), head < len(buf) unless buf is nil; len(buf) is 0 or a power of two.
type ring struct {
	buf  []byte
	head int // index of the first byte
	n    int // bytes queued
}

// minRing is a ring's first allocation in bytes: about 20 token events.
const minRing = 4 << 10

// push appends b, growing as needed.
func (r *ring) push(b []byte) {
	if need := r.n + len(b); need > len(r.buf) {
		size := max(len(r.buf), minRing)
		for size < need {
			size *= 2
		}
		grown := make([]byte, size)
		k := copy(grown, r.first())
		copy(grown[k:], r.buf[:r.n-k])
		r.buf, r.head = grown, 0
	}
	tail := (r.head + r.n) & (len(r.buf) - 1)
	k := copy(r.buf[tail:], b)
	copy(r.buf, b[k:])
	r.n += len(b)
}

// first returns the longest contiguous run of queued bytes, from the oldest on.
func (r *ring) first() []byte { return r.buf[r.head:min(r.head+r.n, len(r.buf))] }

// consume drops the k oldest bytes.
func (r *ring) consume(k int) {
	r.n -= k
	if r.n == 0 {
		r.head = 0
		return
	}
	r.head = (r.head + k) & (len(r.buf) - 1)
}

// check panics if the invariant is broken. Called in tests and with the build tag "invariants".
func (r *ring) check() {
	size := len(r.buf)
	if r.n < 0 || r.n > size || r.head < 0 || (size > 0 && r.head >= size) || size&(size-1) != 0 {
		panic("ipc: broken ring")
	}
}
