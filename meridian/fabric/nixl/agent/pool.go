package agent

import (
	"container/list"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

// errNoRoom: the pool has no room that is not being read or written.
var errNoRoom = errors.New("the pool is in use")

// align is the granularity of the pool, in bytes.
const align = 4096

// extent is a range of the pool.
type extent struct{ at, n int64 }

// value is a sealed value in the pool, or room for one.
type value struct {
	name   [32]byte
	header [seal.HeaderBytes]byte
	room   extent
	size   int64
	// pins count the readers and writers. Invariant: a pinned value's room is not given to another.
	pins int
	gone bool          // not in values: its room is free once pins is 0
	at   *list.Element // in order; nil if gone
}

// pool divides the registered memory among values and forgets the least recently used ones.
type pool struct {
	mu     sync.Mutex
	size   int64
	free   []extent // ascending, never adjacent
	values map[[32]byte]*value
	order  *list.List // of *value, most recently used first
	used   int64      // bytes of rooms. Invariant: used plus the free extents is size.
	lost   int64      // bytes of used that stuck transfers may still write to
	evicts uint64
}

func newPool(size int64) *pool {
	size = size / align * align
	return &pool{size: size, free: []extent{{0, size}}, values: map[[32]byte]*value{}, order: list.New()}
}

// take returns pinned room for n bytes, which is no name's yet.
func (p *pool) take(n int64) (*value, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	need := max(align, (n+align-1)/align*align)
	for {
		for i, e := range p.free {
			if e.n < need {
				continue
			}
			if e.n == need {
				p.free = slices.Delete(p.free, i, i+1)
			} else {
				p.free[i] = extent{e.at + need, e.n - need}
			}
			p.used += need
			return &value{room: extent{e.at, need}, size: n, pins: 1, gone: true}, nil
		}
		at := p.order.Back()
		for at != nil && at.Value.(*value).pins > 0 {
			at = at.Prev()
		}
		if at == nil {
			return nil, fmt.Errorf("%w: no room for %d bytes of %d", errNoRoom, n, p.size)
		}
		p.evicts++
		p.drop(at.Value.(*value))
	}
}

// put gives room from take a name, in the place of an older value. The room stays pinned.
func (p *pool) put(v *value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.values[v.name]; old != nil {
		p.drop(old)
	}
	v.gone = false
	p.values[v.name] = v
	v.at = p.order.PushFront(v)
}

// get returns a value, pinned, or nil.
func (p *pool) get(name [32]byte) *value {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.values[name]
	if v != nil {
		p.order.MoveToFront(v.at)
		v.pins++
	}
	return v
}

// unpin ends a use of room.
func (p *pool) unpin(v *value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.pins--; v.pins == 0 && v.gone {
		p.release(v.room)
	}
}

// lose leaves room that a stuck transfer may still write to pinned for ever.
func (p *pool) lose(v *value) (lost int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost += v.room.n
	return p.lost
}

// remove forgets a value.
func (p *pool) remove(name [32]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.values[name]; v != nil {
		p.drop(v)
	}
}

// drop forgets a value; its room is free once no one reads it. The lock is held.
func (p *pool) drop(v *value) {
	delete(p.values, v.name)
	p.order.Remove(v.at)
	v.at, v.gone = nil, true
	if v.pins == 0 {
		p.release(v.room)
	}
}

// release returns an extent. The lock is held.
func (p *pool) release(e extent) {
	p.used -= e.n
	i, _ := slices.BinarySearchFunc(p.free, e.at, func(f extent, at int64) int {
		if f.at < at {
			return -1
		}
		return 1
	})
	p.free = slices.Insert(p.free, i, e)
	if i+1 < len(p.free) && p.free[i].at+p.free[i].n == p.free[i+1].at {
		p.free[i].n += p.free[i+1].n
		p.free = slices.Delete(p.free, i+1, i+2)
	}
	if i > 0 && p.free[i-1].at+p.free[i-1].n == p.free[i].at {
		p.free[i-1].n += p.free[i].n
		p.free = slices.Delete(p.free, i, i+1)
	}
}

// check verifies the invariants; for tests.
func (p *pool) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	free, end := int64(0), int64(-1)
	for _, e := range p.free {
		if e.n <= 0 || e.at <= end || e.at+e.n > p.size {
			return fmt.Errorf("free extents %v", p.free)
		}
		free, end = free+e.n, e.at+e.n
	}
	if free+p.used != p.size || len(p.values) != p.order.Len() {
		return fmt.Errorf("%d free and %d used of %d; %d values, %d in order", free, p.used, p.size, len(p.values),
			p.order.Len())
	}
	for at := p.order.Front(); at != nil; at = at.Next() {
		if v := at.Value.(*value); p.values[v.name] != v || v.gone || v.pins < 0 {
			return fmt.Errorf("value %x: %d pins, gone %v", v.name[:4], v.pins, v.gone)
		}
	}
	return nil
}
