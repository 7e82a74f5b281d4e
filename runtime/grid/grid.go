// Package grid says at which positions the rows of a sequence are in a model whose positions have several dimensions
// (M-RoPE: Qwen-VL). Above the engine a row is named by its index in the sequence; in the memory of such a model its
// position is another number behind an image.
//
// A row of text, or of a sound, is at the same position in every dimension, one behind the row before. The rows of an
// image are the places of a grid, line by line: all are at one position in time, and each at its line and column. The
// next row is behind the longer side of the grid, so an image of n rows advances positions by less than n. All of that
// follows from where the images are in the sequence and from their grids.
package grid

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
)

// Position is the place of a row, by time, line and column. In the order of Compare those of a sequence ascend.
type Position struct{ T, Y, X int32 }

// Compare returns -1, 0 or 1, as p is before q, q, or behind it.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.T, q.T), cmp.Compare(p.Y, q.Y), cmp.Compare(p.X, q.X))
}

// Image is an image among the rows of a sequence.
type Image struct {
	At    int32 // index of its first row
	N     int32 // rows, a multiple of Width
	Width int32 // rows in a line
	pos   int32 // of its first row, in every dimension
}

// after returns the position of the row behind the image.
func (m *Image) after() int32 { return m.pos + max(m.Width, m.N/m.Width) }

// end returns the index of the row behind the image.
func (m *Image) end() int32 { return m.At + m.N }

// Images are the images of a sequence, ascending. All of them count, those whose rows the memory does not hold too. The
// zero value is a sequence without images, in which an index is a position.
//
// Invariant: they do not overlap.
type Images []Image

// before returns the number of images that begin at index i or before it.
func (s Images) before(i int32) int {
	if n := len(s); n == 0 || s[n-1].At <= i { // most rows are behind all images
		return n
	}
	return sort.Search(len(s), func(k int) bool { return s[k].At > i })
}

// At returns the position of the row with index i.
func (s Images) At(i int32) Position {
	n := s.before(i)
	if n == 0 {
		return Position{i, i, i}
	}
	m := &s[n-1]
	if k := i - m.At; k < m.N {
		return Position{m.pos, m.pos + k/m.Width, m.pos + k%m.Width}
	}
	p := m.after() + i - m.end()
	return Position{p, p, p}
}

// Index returns the index of the row at p; false: no row is there.
func (s Images) Index(p Position) (i int32, ok bool) {
	if p.T >= maxIndex {
		return 0, false
	}
	n := sort.Search(len(s), func(k int) bool { return s[k].pos > p.T })
	if n == 0 {
		return p.T, p.T >= 0 && p.Y == p.T && p.X == p.T
	}
	m := &s[n-1]
	if p.T == m.pos {
		y, x := p.Y-m.pos, p.X-m.pos
		return m.At + y*m.Width + x, x >= 0 && x < m.Width && y >= 0 && y < m.N/m.Width
	}
	return m.end() + p.T - m.after(), p.T >= m.after() && p.Y == p.T && p.X == p.T
}

// Inside reports whether index i cuts an image in two: its T does not tell the rows before it from those behind it.
func (s Images) Inside(i int32) bool {
	n := s.before(i)
	return n > 0 && i > s[n-1].At && i < s[n-1].end()
}

var (
	errOverlap = errors.New("images overlap")
	errGrid    = errors.New("the rows are no grid")
	errFormat  = errors.New("the list of images is malformed")
	errDiffer  = errors.New("other images are there")
)

// Add adds an image of n rows at index at, in lines of width rows, unless it is there. It is behind all others.
func (s *Images) Add(at, n, width int32) error {
	if at < 0 || n < 1 || width < 1 || n%width != 0 || at > maxIndex-n {
		return errGrid
	}
	k := s.before(at)
	if k > 0 {
		switch m := &(*s)[k-1]; {
		case m.At == at && m.N == n && m.Width == width:
			return nil
		case m.end() > at:
			return errOverlap
		}
	}
	if k < len(*s) {
		return errOverlap
	}
	*s = append(*s, Image{At: at, N: n, Width: width, pos: s.At(at).T})
	return nil
}

// maxIndex bounds indexes: those of two rows never add up to more than an int32.
const maxIndex = 1 << 30

// Cut forgets the images from index end on. One that begins before it stays.
func (s *Images) Cut(end int32) {
	if n := len(*s); n > 0 && (*s)[n-1].At >= end {
		*s = (*s)[:s.before(end-1)]
	}
}

// Head returns the images of s that begin before index end. They are part of s.
func (s Images) Head(end int32) Images {
	n := s.before(end - 1)
	return s[:n:n]
}

// Join adds the images of o, a list of the same sequence that may be shorter or longer.
func (s *Images) Join(o Images) error {
	n := min(len(*s), len(o))
	if !slices.Equal((*s)[:n], o[:n]) {
		return errDiffer
	}
	if n < len(o) {
		*s = append(*s, o[n:]...)
	}
	return nil
}

// Joins reports whether s and o may be of one sequence, of which s has rows up to index last and o up to oLast.
func (s Images) Joins(last int32, o Images, oLast int32) bool {
	n := min(len(s), len(o))
	return slices.Equal(s[:n], o[:n]) && (n == len(s) || s[n].At > oLast) && (n == len(o) || o[n].At > last)
}

// A snapshot of a sequence with images begins with their list: the magic, their number, and three numbers of each, all
// little-endian (docs/snapshot-format.md). What llama.cpp writes begins with a small number, and it refuses another.
const (
	magic     = "\x89grid1\r\n"
	imageSize = 12
	// maxImages bounds the images of a snapshot. Each has a row at least, and a part has at most 2^22 positions.
	maxImages = 1 << 20
)

// Size returns the bytes that Append appends.
func (s Images) Size() int {
	if len(s) == 0 {
		return 0
	}
	return len(magic) + 4 + imageSize*len(s)
}

// Append appends the list to dst; nothing without images.
func (s Images) Append(dst []byte) []byte {
	if len(s) == 0 {
		return dst
	}
	le := binary.LittleEndian
	dst = le.AppendUint32(append(dst, magic...), uint32(len(s)))
	for _, m := range s {
		dst = le.AppendUint32(le.AppendUint32(le.AppendUint32(dst, uint32(m.At)), uint32(m.N)), uint32(m.Width))
	}
	return dst
}

// Parse returns the list at the beginning of a snapshot and the bytes behind it. Without the magic there are no images.
func Parse(b []byte) (s Images, rest []byte, err error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return nil, b, nil
	}
	b = b[len(magic):]
	le := binary.LittleEndian
	if len(b) < 4 {
		return nil, nil, errFormat
	}
	n := le.Uint32(b)
	if b = b[4:]; n < 1 || n > maxImages || uint64(len(b)) < uint64(n)*imageSize {
		return nil, nil, errFormat
	}
	s = make(Images, 0, n)
	for range n {
		at, rows, width := le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
		if max(at, rows, width) > maxIndex {
			return nil, nil, errFormat
		}
		if err := s.Add(int32(at), int32(rows), int32(width)); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", errFormat, err)
		}
		b = b[imageSize:]
	}
	if uint32(len(s)) != n { // one was there twice
		return nil, nil, errFormat
	}
	return s, b, nil
}
