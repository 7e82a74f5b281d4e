package views

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/uma-serve/uma-serve/runtime"
)

// A view as bytes, for a file (docs/snapshot-format.md):
//
//	4 bytes   H, the length of the head, little-endian
//	H bytes   the head: runtime.View as JSON, without the rows
//	the rest  the rows of all segments, one behind the other: float32, little-endian
//
// The head holds every field of a view and of a segment, so that one more field needs no code here, but for a check.

var (
	// ErrBytes: they are not a view.
	ErrBytes = errors.New("not the bytes of a view")
	// ErrLimits: they are a view, and this engine cannot take it. An engine with other options may.
	ErrLimits = errors.New("the view does not fit this engine")
)

const (
	// maxSegments bounds the segments of a view.
	maxSegments = 1024
	headBytes   = 4
)

// Limits say which views an engine takes.
type Limits struct {
	Width    int  // values of a row
	Vocab    int  // tokens of text are below it
	Tokens   int  // of the whole view: the context
	Together int  // rows that see each other: of one step
	Grids    bool // the rows of a segment may be a grid
}

// Most returns an upper bound of the bytes of a view.
func (l *Limits) Most() int64 { return 1<<20 + int64(l.Tokens)*(64+4*int64(l.Width)) }

// Bytes writes v into the memory that alloc returns.
func Bytes(v *runtime.View, alloc func(n int) ([]byte, error)) error {
	head, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write a view: %w", err)
	}
	n := headBytes + len(head)
	for i := range v.Segments {
		n += 4 * len(v.Segments[i].Rows)
	}
	b, err := alloc(n)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(b, uint32(len(head)))
	b = b[headBytes:]
	b = b[copy(b, head):]
	for i := range v.Segments {
		for _, x := range v.Segments[i].Rows {
			if !finite(x) {
				return errors.New("write a view: a row has a value that is not finite")
			}
			binary.LittleEndian.PutUint32(b, math.Float32bits(x))
			b = b[4:]
		}
	}
	return nil
}

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }

// Parse returns the view of b, of which it keeps nothing. The bytes may come from anywhere: what it returns, an engine
// with these limits can decode. The error is ErrBytes or ErrLimits.
func Parse(b []byte, l *Limits) (*runtime.View, error) {
	bad := func(format string, a ...any) (*runtime.View, error) {
		return nil, fmt.Errorf("%w: %s", ErrBytes, fmt.Sprintf(format, a...))
	}
	if len(b) < headBytes {
		return bad("%d bytes", len(b))
	}
	n, rows := binary.LittleEndian.Uint32(b), b[headBytes:]
	if uint64(n) > uint64(len(rows)) {
		return bad("a head of %d bytes in %d", n, len(b))
	}
	head := json.NewDecoder(bytes.NewReader(rows[:n]))
	head.DisallowUnknownFields()
	v := &runtime.View{}
	if err := head.Decode(v); err != nil {
		return bad("the head: %v", err)
	}
	if _, err := head.Token(); !errors.Is(err, io.EOF) {
		return bad("the head has more than a view")
	}
	if err := check(v, l); err != nil {
		return nil, err
	}
	rows = rows[n:]
	total := 0
	for i := range v.Segments {
		total += v.Segments[i].N
	}
	if want := 4 * int64(total) * int64(l.Width); int64(len(rows)) != want {
		return bad("%d bytes of rows, want %d: %d rows of %d values", len(rows), want, total, l.Width)
	}
	for i := range v.Segments {
		s := &v.Segments[i]
		s.Rows = make([]float32, s.N*l.Width)
		for k := range s.Rows {
			if s.Rows[k] = math.Float32frombits(binary.LittleEndian.Uint32(rows[4*k:])); !finite(s.Rows[k]) {
				return bad("segment %d: value %d is not finite", i, k)
			}
		}
		rows = rows[4*len(s.Rows):]
	}
	return v, nil
}

// check verifies everything but the rows.
func check(v *runtime.View, l *Limits) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s", ErrBytes, fmt.Sprintf(format, a...))
	}
	switch {
	case len(v.Tokens) > l.Tokens:
		return fmt.Errorf("%w: %d tokens, and the context has %d", ErrLimits, len(v.Tokens), l.Tokens)
	case len(v.Segments) == 0 || len(v.Segments) > maxSegments:
		return bad("%d segments, need 1 … %d", len(v.Segments), maxSegments)
	}
	end := 0
	for i, s := range v.Segments {
		switch {
		case s.At < end || s.N < 1 || s.N > len(v.Tokens) || s.At > len(v.Tokens)-s.N:
			return bad("segment %d: rows [%d, +%d) of %d tokens, behind %d", i, s.At, s.N, len(v.Tokens), end)
		case s.Width < 0 || s.Width > 0 && s.N%s.Width != 0:
			return bad("segment %d: %d rows in lines of %d", i, s.N, s.Width)
		case s.Width > 0 && !l.Grids:
			return fmt.Errorf("%w: %d rows in lines of %d, and its rows are no grid", ErrLimits, s.N, s.Width)
		case s.Together && s.N > l.Together:
			return fmt.Errorf("%w: %d rows at once, and a step takes %d", ErrLimits, s.N, l.Together)
		}
		for k, t := range v.Tokens[end : s.At+s.N] {
			row := end + k - s.At
			switch {
			case row < 0 && (t < 0 || int(t) >= l.Vocab):
				return bad("token %d is %d, of a vocabulary of %d", end+k, t, l.Vocab)
			case row >= 0 && (!runtime.IsImage(t) || runtime.BeginsImage(t) != (row == 0)):
				return bad("token %d is %d, in row %d of segment %d", end+k, t, row, i)
			}
		}
		end = s.At + s.N
	}
	for k, t := range v.Tokens[end:] {
		if t < 0 || int(t) >= l.Vocab {
			return bad("token %d is %d, of a vocabulary of %d", end+k, t, l.Vocab)
		}
	}
	return nil
}
