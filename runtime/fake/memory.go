package fake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"github.com/uma-serve/uma-serve/runtime"
)

func (e *Engine) known(s runtime.Seq) bool { return s >= 0 && int(s) < len(e.seqs) }

func (e *Engine) last(s runtime.Seq) runtime.Pos {
	c := e.seqs[s].cells
	if len(c) == 0 {
		return -1
	}
	return e.cells[c[len(c)-1]].pos
}

func (e *Engine) SeqRange(s runtime.Seq) (first, last runtime.Pos) {
	if !e.known(s) || len(e.seqs[s].cells) == 0 {
		return -1, -1
	}
	return e.cells[e.seqs[s].cells[0]].pos, e.last(s)
}

// span returns the indices of positions [p0, p1) in s's cells; p1 < 0 means to the end.
func (e *Engine) span(s runtime.Seq, p0, p1 runtime.Pos) (from, to int) {
	c := e.seqs[s].cells
	from = sort.Search(len(c), func(i int) bool { return e.cells[c[i]].pos >= p0 })
	to = len(c)
	if p1 >= 0 {
		to = sort.Search(len(c), func(i int) bool { return e.cells[c[i]].pos >= p1 })
	}
	return from, max(from, to)
}

func (e *Engine) SeqRemove(s runtime.Seq, p0, p1 runtime.Pos) bool {
	e.enter()
	defer e.leave()
	if !e.known(s) {
		return false
	}
	from, to := e.span(s, p0, p1)
	if e.cfg.NoRanges && to-from > 0 && to-from < len(e.seqs[s].cells) {
		return false
	}
	e.drop(s, from, to)
	return true
}

func (e *Engine) drop(s runtime.Seq, from, to int) {
	q := &e.seqs[s]
	for _, i := range q.cells[from:to] {
		c := &e.cells[i]
		q.sum -= c.hash()
		if c.owners--; c.owners == 0 {
			e.free = append(e.free, i)
		}
	}
	q.cells = append(q.cells[:from], q.cells[to:]...)
}

func (e *Engine) SeqCopy(src, dst runtime.Seq, p0, p1 runtime.Pos) {
	e.enter()
	defer e.leave()
	if e.known(src) && e.known(dst) && src != dst {
		from, to := e.span(src, p0, p1)
		e.share(e.seqs[src].cells[from:to], dst)
	}
}

// share adds cells, ascending in position, to dst. It panics where dst holds another cell at one of the positions.
func (e *Engine) share(cells []int32, dst runtime.Seq) {
	q := &e.seqs[dst]
	for _, i := range cells {
		c := &e.cells[i]
		at, end := e.span(dst, c.pos, c.pos+1)
		if at < end {
			if q.cells[at] == i {
				continue
			}
			panic(fmt.Sprintf("fake: copy to sequence %d: it already holds another cell at position %d", dst, c.pos))
		}
		q.cells = append(q.cells, 0)
		copy(q.cells[at+1:], q.cells[at:])
		q.cells[at] = i
		q.sum += c.hash()
		c.owners++
	}
}

func (e *Engine) SeqAdd(s runtime.Seq, p0, p1, delta runtime.Pos) error {
	e.enter()
	defer e.leave()
	if !e.caps.CanShift {
		return fmt.Errorf("shift positions: %w", runtime.ErrUnsupported)
	}
	if !e.known(s) {
		return fmt.Errorf("shift positions: sequence %d is not one of 0 … %d", s, len(e.seqs)-1)
	}
	e.shifted = true
	from, to := e.span(s, p0, p1)
	q := &e.seqs[s]
	for _, i := range q.cells[from:to] {
		c := &e.cells[i]
		if c.owners > 1 {
			panic(fmt.Sprintf("fake: shift of sequence %d: its cell at position %d is shared", s, c.pos))
		}
		q.sum += hash(c.pos+delta, c.token) - hash(c.pos, c.token)
		c.pos += delta
	}
	// Cells moved below position 0 are freed, as in llama.cpp.
	_, gone := e.span(s, -1<<30, 0)
	e.drop(s, 0, gone)
	return nil
}

// A snapshot is this magic, the number of cells, and each cell's position and token, little-endian.
const (
	snapshotMagic  = 0x454b4146 // "FAKE"
	snapshotHeader = 8
	cellBytes      = 8
)

func (e *Engine) toSnapshot(s runtime.Seq, p0, p1 runtime.Pos) ([]int32, error) {
	if !e.known(s) {
		return nil, fmt.Errorf("sequence %d is not one of 0 … %d", s, len(e.seqs)-1)
	}
	from, to := e.span(s, p0, p1)
	if from == to {
		return nil, fmt.Errorf("sequence %d holds nothing at [%d, %d)", s, p0, p1)
	}
	if e.cfg.NoRanges && to-from < len(e.seqs[s].cells) {
		return nil, fmt.Errorf("a part of a sequence: %w", runtime.ErrUnsupported)
	}
	return e.seqs[s].cells[from:to], nil
}

func (e *Engine) SnapshotSize(s runtime.Seq, p0, p1 runtime.Pos) (int, error) {
	cells, err := e.toSnapshot(s, p0, p1)
	if err != nil {
		return 0, fmt.Errorf("size of a snapshot: %w", err)
	}
	return snapshotHeader + len(cells)*cellBytes, nil
}

// scratchOK reports whether scratch is valid: the real engine needs an empty scratch sequence for a part of s.
func (e *Engine) scratchOK(s, scratch runtime.Seq) error {
	switch {
	case !e.known(scratch) || scratch == s:
		return fmt.Errorf("sequence %d cannot be the scratch for %d", scratch, s)
	case len(e.seqs[scratch].cells) > 0:
		return fmt.Errorf("scratch sequence %d is in use", scratch)
	}
	return nil
}

func (e *Engine) Snapshot(dst []byte, s, scratch runtime.Seq, p0, p1 runtime.Pos) (int, error) {
	e.enter()
	defer e.leave()
	cells, err := e.toSnapshot(s, p0, p1)
	if err == nil && len(cells) < len(e.seqs[s].cells) {
		err = e.scratchOK(s, scratch)
	}
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	n := snapshotHeader + len(cells)*cellBytes
	if len(dst) < n {
		return 0, fmt.Errorf("snapshot: needs %d bytes, the buffer has %d", n, len(dst))
	}
	le := binary.LittleEndian
	le.PutUint32(dst, snapshotMagic)
	le.PutUint32(dst[4:], uint32(len(cells)))
	for k, i := range cells {
		le.PutUint32(dst[snapshotHeader+k*cellBytes:], uint32(e.cells[i].pos))
		le.PutUint32(dst[snapshotHeader+k*cellBytes+4:], uint32(e.cells[i].token)|uint32(e.cells[i].mix)<<16)
	}
	return n, nil
}

func (e *Engine) Restore(src []byte, s, scratch runtime.Seq) error {
	e.enter()
	defer e.leave()
	if !e.known(s) {
		return fmt.Errorf("%w: sequence %d is not one of 0 … %d", runtime.ErrSnapshot, s, len(e.seqs)-1)
	}
	got, err := e.parseSnapshot(src)
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrSnapshot, err)
	}
	if first, last := e.SeqRange(s); last >= 0 {
		if e.cfg.NoRanges {
			return fmt.Errorf("%w: sequence %d is in use: %w", runtime.ErrSnapshot, s, runtime.ErrUnsupported)
		}
		if err := e.scratchOK(s, scratch); err != nil {
			return fmt.Errorf("%w: %w", runtime.ErrSnapshot, err)
		}
		if q0, q1 := got[0].pos, got[len(got)-1].pos; q0 <= last && first <= q1 {
			return fmt.Errorf("%w: sequence %d already holds [%d, %d], the snapshot [%d, %d]", runtime.ErrSnapshot, s,
				first, last, q0, q1)
		}
	}
	if len(got) > len(e.free) {
		return fmt.Errorf("restore: %w", runtime.ErrKVFull)
	}
	cells := make([]int32, len(got))
	for k, c := range got {
		i := e.free[len(e.free)-1]
		e.free = e.free[:len(e.free)-1]
		e.cells[i] = c
		cells[k] = i
	}
	e.share(cells, s)
	return nil
}

func (e *Engine) parseSnapshot(src []byte) ([]cell, error) {
	le := binary.LittleEndian
	if len(src) < snapshotHeader || le.Uint32(src) != snapshotMagic {
		return nil, errors.New("it is not one of this engine's")
	}
	n := int(le.Uint32(src[4:]))
	if n == 0 || len(src) != snapshotHeader+n*cellBytes {
		return nil, fmt.Errorf("it says %d cells and has %d bytes", n, len(src))
	}
	out := make([]cell, n)
	for k := range out {
		b := src[snapshotHeader+k*cellBytes:]
		out[k] = cell{pos: runtime.Pos(le.Uint32(b)), token: runtime.Token(le.Uint16(b[4:])),
			mix: le.Uint16(b[6:])}
		if out[k].pos < 0 || k > 0 && out[k].pos <= out[k-1].pos || !e.vocab.known(out[k].token) {
			return nil, fmt.Errorf("cell %d is malformed", k)
		}
	}
	return out, nil
}

// check panics when an invariant of the pool does not hold.
func (e *Engine) check() {
	owners := make([]int32, len(e.cells))
	for s := range e.seqs {
		var sum uint64
		prev := runtime.Pos(-1)
		for _, i := range e.seqs[s].cells {
			c := e.cells[i]
			if c.pos <= prev {
				panic(fmt.Sprintf("fake: sequence %d: position %d after %d", s, c.pos, prev))
			}
			prev = c.pos
			sum += c.hash()
			owners[i]++
		}
		if sum != e.seqs[s].sum {
			panic(fmt.Sprintf("fake: sequence %d: its content hash is wrong", s))
		}
	}
	free := 0
	for i, c := range e.cells {
		if c.owners != owners[i] {
			panic(fmt.Sprintf("fake: cell %d counts %d owners and has %d", i, c.owners, owners[i]))
		}
		if c.owners == 0 {
			free++
		}
	}
	if free != len(e.free) {
		panic(fmt.Sprintf("fake: %d cells are free, %d listed", free, len(e.free)))
	}
}
