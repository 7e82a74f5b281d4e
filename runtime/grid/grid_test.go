package grid

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// walk is the reference: the positions of a sequence's rows, one after the other, as llama.cpp's libmtmd counts them.
// images has for each image its first row, rows and width.
func walk(images [][3]int32, rows int32) (at []Position) {
	next := int32(0)
	for i := int32(0); i < rows; {
		k := slices.IndexFunc(images, func(m [3]int32) bool { return m[0] == i })
		if k < 0 {
			at = append(at, Position{next, next, next})
			next++
			i++
			continue
		}
		n, width := images[k][1], images[k][2]
		x, y, most := int32(0), int32(0), int32(0)
		for range n {
			at = append(at, Position{next, next + y, next + x})
			most = max(most, x+1, y+1)
			if x++; x == width {
				x, y = 0, y+1
			}
		}
		next += most
		i += n
	}
	return at
}

// random returns some images and the rows of their sequence.
func random(r *rand.Rand) (images [][3]int32, rows int32) {
	for range r.IntN(5) {
		if r.IntN(3) > 0 { // two images may follow one another, and one may be the beginning
			rows += r.Int32N(20)
		}
		width, lines := 1+r.Int32N(9), 1+r.Int32N(9)
		images = append(images, [3]int32{rows, width * lines, width})
		rows += width * lines
	}
	return images, rows + r.Int32N(20)
}

func made(t *testing.T, images [][3]int32) (s Images) {
	t.Helper()
	for _, m := range images {
		for range 2 { // the second time it is there
			if err := s.Add(m[0], m[1], m[2]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(s) != len(images) {
		t.Fatalf("%d images, want %d", len(s), len(images))
	}
	return s
}

// TestPositions: the positions of random sequences are those of the reference, and ascend.
func TestPositions(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		images, rows := random(r)
		want := walk(images, rows)
		if int32(len(want)) < rows {
			t.Fatalf("seed %d: the reference has %d rows of %d", seed, len(want), rows)
		}
		s := made(t, images)
		known := map[Position]int32{}
		for i, p := range want {
			i := int32(i)
			if got := s.At(i); got != p {
				t.Fatalf("seed %d: images %v: row %d is at %v, want %v", seed, images, i, got, p)
			}
			if i > 0 && want[i-1].Compare(p) >= 0 {
				t.Fatalf("seed %d: images %v: row %d does not ascend", seed, images, i)
			}
			inside := i > 0 && want[i-1].T == p.T
			if s.Inside(i) != inside {
				t.Fatalf("seed %d: images %v: row %d cuts an image: %v", seed, images, i, !inside)
			}
			known[p] = i
		}
		last := Position{}
		if len(want) > 0 {
			last = want[len(want)-1]
		}
		for range 200 {
			p := Position{r.Int32N(last.T + 10), 0, 0}
			p.Y, p.X = p.T+r.Int32N(11)-1, p.T+r.Int32N(11)-1
			if r.IntN(2) == 0 {
				p.Y, p.X = p.T, p.T
			}
			want, is := known[p]
			got, ok := s.Index(p)
			if is && (got != want || !ok) || !is && ok && got < rows {
				t.Fatalf("seed %d: images %v: %v is row %d (%v), want %d (%v)", seed, images, p, got, ok, want, is)
			}
		}
		for p, i := range known {
			if got, ok := s.Index(p); got != i || !ok {
				t.Fatalf("seed %d: images %v: %v is row %d (%v), want %d", seed, images, p, got, ok, i)
			}
		}
	}
}

// TestLists: what Cut, Set, Join, Append and Parse keep is what the rows before an index need.
func TestLists(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		images, rows := random(r)
		whole := made(t, images)
		end := r.Int32N(rows + 2)
		head := whole.Head(end)
		cut := slices.Clone(whole)
		cut.Cut(end)
		if !slices.Equal(head, cut) {
			t.Fatalf("seed %d: %v and %v", seed, head, cut)
		}
		for i := range end {
			if head.At(i) != whole.At(i) {
				t.Fatalf("seed %d: images %v up to %d: row %d", seed, images, end, i)
			}
		}
		for _, m := range head {
			if m.At >= end {
				t.Fatalf("seed %d: images %v up to %d has %v", seed, images, end, m)
			}
		}
		for _, pair := range [][2]Images{{head, whole}, {whole, head}} {
			joined := slices.Clone(pair[0])
			if err := joined.Join(pair[1]); err != nil || !slices.Equal(joined, whole) {
				t.Fatalf("seed %d: %v and %v: %v, %v", seed, pair[0], pair[1], joined, err)
			}
		}
		b := append(whole.Append(nil), "state"...)
		got, rest, err := Parse(b)
		if err != nil || !slices.Equal(got, whole) || string(rest) != "state" || len(b) != whole.Size()+len(rest) {
			t.Fatalf("seed %d: %v, %q, %v", seed, got, rest, err)
		}
	}
}

// TestRefused: lists that are none of a sequence.
func TestRefused(t *testing.T) {
	s := made(t, [][3]int32{{4, 12, 4}, {30, 2, 1}})
	for _, m := range [][3]int32{{4, 12, 3}, {4, 8, 4}, {5, 1, 1}, {15, 1, 1}, {16, 1, 1}, {31, 1, 1}, {-1, 1, 1},
		{40, 0, 1}, {40, 1, 0}, {40, 7, 2}, {40, 2, -1}, {maxIndex, 1, 1}, {1, maxIndex, 1}} {
		c := slices.Clone(s)
		if err := c.Add(m[0], m[1], m[2]); err == nil {
			t.Errorf("%v is added", m)
		}
		if !slices.Equal(c, s) {
			t.Errorf("%v has changed the list", m)
		}
	}
	if err := s.Join(made(t, [][3]int32{{4, 12, 3}})); err == nil {
		t.Error("lists of two sequences are joined")
	}
	valid := s.Append(nil)
	for n := len(magic); n < len(valid); n++ {
		if _, _, err := Parse(valid[:n]); err == nil {
			t.Errorf("%d of %d bytes are a list", n, len(valid))
		}
	}
	for name, b := range map[string][]byte{
		"none":     append([]byte(magic), 0, 0, 0, 0),
		"many":     append([]byte(magic), 255, 255, 255, 255),
		"overlap":  append(append([]byte(magic), 2, 0, 0, 0), slices.Repeat([]byte{4, 0, 0, 0}, 6)...),
		"negative": append(append([]byte(magic), 1, 0, 0, 0), slices.Repeat([]byte{255}, 12)...),
	} {
		if got, _, err := Parse(b); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got, rest, err := Parse([]byte("\x01\x00\x00\x00")); err != nil || got != nil || len(rest) != 4 {
		t.Errorf("a snapshot without images: %v, %d, %v", got, len(rest), err)
	}
}

// FuzzParse: no bytes panic, and a list that is read is written the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(append(Images{{At: 3, N: 6, Width: 2, pos: 3}, {At: 9, N: 1, Width: 1, pos: 6}}.Append(nil), 1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := Parse(b)
		if err != nil {
			return
		}
		if got := s.Append(nil); !bytes.Equal(append(got, rest...), b) {
			t.Fatalf("%v", s)
		}
		for i := range min(int32(len(b)), 100) {
			if k, ok := s.Index(s.At(i)); k != i || !ok {
				t.Fatalf("%v: row %d is row %d", s, i, k)
			}
		}
	})
}

// TestAllocs: a step asks for the positions of its rows.
func TestAllocs(t *testing.T) {
	s := made(t, [][3]int32{{4, 12, 4}, {30, 2, 1}})
	o := slices.Clone(s)
	if n := testing.AllocsPerRun(100, func() {
		for i := range int32(50) {
			s.At(i)
			s.Inside(i)
		}
		o.Cut(20)
		_ = o.Join(s)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
