package grid

import (
	"fmt"

	"github.com/uma-serve/uma-serve/runtime"
)

// Sequences has the images of each sequence of an engine. It has the rows of the engine's batch at positions while a
// Decode reads them.
type Sequences struct {
	of    []Images
	next  []runtime.Pos // scratch of follows
	index []runtime.Pos // of the batch's rows while they are at positions; empty: they are not
}

// NewSequences is for n sequences and batches of up to rows rows.
func NewSequences(n, rows int) *Sequences {
	return &Sequences{of: make([]Images, n), next: make([]runtime.Pos, n), index: make([]runtime.Pos, 0, rows)}
}

// Of returns the images of sequence s, none for nil Sequences.
func (q *Sequences) Of(s runtime.Seq) Images {
	if q == nil {
		return nil
	}
	return q.of[s]
}

// Images returns the list of s, to be changed.
func (q *Sequences) Images(s runtime.Seq) *Images { return &q.of[s] }

// SetPositions has the rows of b at their positions instead of their indexes, and takes in the images that they are of.
// last returns the index of a sequence's last row, -1 without rows. Nil Sequences leave b as it is. Errors wrap
// runtime.ErrDecode.
func (q *Sequences) SetPositions(b *runtime.Batch, last func(runtime.Seq) runtime.Pos) error {
	if q == nil {
		return nil
	}
	if err := q.follows(b, last); err != nil {
		return err
	}
	for _, r := range b.Images {
		p, s := r.Segment, b.Seq[r.Row]
		if p.Width == 0 {
			continue
		}
		if err := q.of[s].Add(b.Pos[r.Row]-runtime.Pos(r.At), int32(p.N), int32(p.Width)); err != nil {
			return fmt.Errorf("%w: row %d: row %d of an image of %d rows in lines of %d, at position %d of sequence "+
				"%d: %w", runtime.ErrDecode, r.Row, r.At, p.N, p.Width, b.Pos[r.Row], s, err)
		}
	}
	some := false
	for _, s := range b.Seq {
		some = some || len(q.of[s]) > 0
	}
	if !some {
		return nil
	}
	q.index = append(q.index, b.Pos...)
	for i, s := range b.Seq {
		b.Pos[i] = q.of[s].At(b.Pos[i]).T
	}
	return nil
}

// follows refuses a batch whose rows do not follow those of their sequences. llama.cpp does not: it takes positions
// with gaps from such models.
func (q *Sequences) follows(b *runtime.Batch, last func(runtime.Seq) runtime.Pos) error {
	for s := range q.next {
		q.next[s] = -1
	}
	for i, s := range b.Seq {
		next := q.next[s]
		if next < 0 {
			if next = last(s) + 1; next == 0 {
				next = b.Pos[i]
			}
		}
		if b.Pos[i] != next {
			return fmt.Errorf("%w: row %d: position %d of sequence %d, want %d", runtime.ErrDecode, i, b.Pos[i], s,
				next)
		}
		q.next[s] = next + 1
	}
	return nil
}

// SetIndexes undoes SetPositions.
func (q *Sequences) SetIndexes(b *runtime.Batch) {
	if q != nil {
		copy(b.Pos, q.index)
		q.index = q.index[:0]
	}
}

// Places returns the positions of rows [from, to) of b, which are of one image or one sound: those of all rows in the
// first dimension, then in the next, of four. Nil Sequences know one.
func (q *Sequences) Places(b *runtime.Batch, from, to int, image bool) []runtime.Pos {
	pos, n := b.Pos[from:to], to-from
	if q == nil {
		return pos
	}
	if len(q.index) > 0 {
		pos = q.index[from:to]
	}
	places := make([]runtime.Pos, 4*n)
	for k, i := range pos {
		p := q.of[b.Seq[from]].At(i)
		places[k], places[n+k], places[2*n+k] = p.T, p.Y, p.X
		if !image { // the last dimension of an image is 0
			places[3*n+k] = p.T
		}
	}
	return places
}
