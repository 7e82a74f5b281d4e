//go:build cgo && llama_engine && !llama_no_images && !llama_no_grids

package llama_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// gridKinds are the families whose positions have several dimensions.
var gridKinds = []struct {
	arch ggufgen.Arch
	kind ggufgen.ProjectorKind
}{
	{ggufgen.Qwen2VL, ggufgen.Qwen2VLMerger}, {ggufgen.Qwen2VL, ggufgen.Qwen25VLMerger},
	{ggufgen.Qwen3VL, ggufgen.Qwen3VLMerger},
}

// gridOptions opens a model of an architecture with a projector of a family.
func gridOptions(t *testing.T, arch ggufgen.Arch, kind ggufgen.ProjectorKind) runtime.Options {
	t.Helper()
	cfg := ggufgen.TinyLFM2()
	if arch != ggufgen.LFM2 {
		cfg = ggufgen.TinyGrids(arch)
	}
	file := filepath.Join(t.TempDir(), "mmproj.gguf")
	if err := ggufgen.WriteProjector(file, ggufgen.Projector{Kind: kind, Width: cfg.Embedding, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	return runtime.Options{ModelPath: ggufgen.Cached(t, cfg), ContextTokens: 1024, Sequences: 6, Threads: 1,
		MicroBatch: 64, Projector: file}
}

func openGrids(t *testing.T, arch ggufgen.Arch, kind ggufgen.ProjectorKind) runtime.Engine {
	t.Helper()
	e, err := llama.Open(gridOptions(t, arch, kind))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// history is a prompt with images, and what is said behind it.
type history struct {
	t        *testing.T
	e        runtime.Engine
	tokens   []runtime.Token
	segments []runtime.ViewSegment
}

// newHistory makes a prompt of texts and pictures; of the latter it has the sizes.
func newHistory(t *testing.T, e runtime.Engine, parts ...any) *history {
	t.Helper()
	h := &history{t: t, e: e}
	for i, p := range parts {
		switch p := p.(type) {
		case string:
			var err error
			if h.tokens, err = e.Vocab().Tokenize(h.tokens, p, i == 0, false); err != nil {
				t.Fatal(err)
			}
		case [2]int:
			v, err := e.(runtime.Viewer).View(waves(p[0], p[1], 0), 0, always)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range v.Segments {
				if e.(runtime.Viewer).Images().Grids != (s.Width > 0) || s.Width > 0 && s.N%s.Width != 0 {
					t.Fatalf("%d rows in lines of %d", s.N, s.Width)
				}
				s.At += len(h.tokens)
				h.segments = append(h.segments, s)
			}
			h.tokens = append(h.tokens, v.Tokens...)
		}
	}
	return h
}

// segment returns the image that row i is of; nil: it is text.
func (h *history) segment(i int) *runtime.ViewSegment {
	for k := range h.segments {
		if p := &h.segments[k]; i >= p.At && i < p.At+p.N {
			return p
		}
	}
	return nil
}

// add adds rows [from, to) of sequence s to the batch.
func (h *history) add(s runtime.Seq, from, to int) {
	b := h.e.Batch()
	for i := from; i < to; i++ {
		if p := h.segment(i); p != nil {
			b.AddImage(h.tokens[i], runtime.Pos(i), s, p, i-p.At)
			continue
		}
		b.Add(h.tokens[i], runtime.Pos(i), s, i == len(h.tokens)-1)
	}
}

// compute computes rows [from, to) of sequence s in steps of up to n rows.
func (h *history) compute(s runtime.Seq, from, to, n int) {
	h.t.Helper()
	for ; from < to; from += n {
		h.e.Batch().Reset()
		h.add(s, from, min(from+n, to))
		if err := h.e.Decode(); err != nil {
			h.t.Fatalf("rows %d … %d: %v", from, min(from+n, to), err)
		}
		for i, p := range h.e.Batch().Pos {
			if int(p) != from+i {
				h.t.Fatalf("row %d of the batch is at %d behind the Decode, want %d", i, p, from+i)
			}
		}
		h.wantEnd(s, min(from+n, to))
	}
}

func (h *history) wantEnd(s runtime.Seq, end int) {
	h.t.Helper()
	first, last := h.e.SeqRange(s)
	if h.e.Capabilities().Seals && first == last { // a state is at its end alone
		first = min(first, 0)
	}
	if int(last) != end-1 || end > 0 && first != 0 {
		h.t.Fatalf("sequence %d holds [%d, %d], want [0, %d]", s, first, last, end-1)
	}
}

// rows computes the last row of the history again, and a few that it leads to, and returns their logits.
func (h *history) rows(s runtime.Seq) (out []float32) {
	h.t.Helper()
	n := len(h.tokens)
	if !h.e.SeqRemove(s, runtime.Pos(n-1), -1) {
		h.t.Fatalf("the last row of sequence %d cannot be removed", s)
	}
	t := h.tokens[n-1]
	for i := range 4 {
		b := h.e.Batch()
		b.Reset()
		b.Add(t, runtime.Pos(n-1+i), s, true)
		if err := h.e.Decode(); err != nil {
			h.t.Fatal(err)
		}
		row := h.e.Logits(0)
		out = append(out, row...)
		t, _ = llama.ArgMax(row)
	}
	if !h.e.SeqRemove(s, runtime.Pos(n), -1) {
		h.t.Fatal("what was said cannot be removed")
	}
	h.wantEnd(s, n)
	return out
}

// same requires equal bits where rows are exact.
func same(a, b []float32) bool {
	if llama.Exact() && !slices.Contains(llama.LeftOut(), "positions") && len(llama.Backends().Devices) == 0 {
		return slices.Equal(a, b)
	}
	return near(a, b)
}

// twoPictures is a prompt that begins with a picture, has one twice, and two that follow one another.
func twoPictures(t *testing.T, e runtime.Engine) *history {
	return newHistory(t, e, [2]int{100, 60}, "look at this ", [2]int{70, 120}, [2]int{100, 60}, " and tell me",
		[2]int{40, 40}, "what")
}

// TestGrids: with positions of several dimensions, a history that was computed in steps of any size, shared, cut back
// and computed again, stored in parts, also of an image, and restored in a pool with gaps, goes on as the one that was
// computed at once.
func TestGrids(t *testing.T) {
	for _, k := range gridKinds {
		t.Run(string(k.kind), func(t *testing.T) {
			e := openGrids(t, k.arch, k.kind)
			h := twoPictures(t, e)
			n := len(h.tokens)
			if n > 180 || len(h.segments) != 4 {
				t.Fatalf("%d rows, %d images", n, len(h.segments))
			}
			if c := e.(runtime.Viewer).ImageCounts(); c.Encoded != 3 || c.Cached != 1 {
				t.Errorf("an image twice is encoded twice: %+v", c)
			}
			h.compute(0, 0, n, n)
			want := h.rows(0)
			other := newHistory(t, e, [2]int{60, 100}, "look at this ", [2]int{70, 120}, [2]int{100, 60},
				" and tell me", [2]int{40, 40}, "what")
			other.compute(1, 0, n, n)
			if same(want, other.rows(1)) {
				t.Error("another picture's answer is the same")
			}
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			for round := range 25 {
				what := fmt.Sprintf("seed %d, round %d", seed, round)
				e.SeqRemove(1, 0, -1)
				e.SeqRemove(2, 0, -1)
				e.SeqRemove(5, 0, -1)
				// Gaps in the pool: of a bystander most rows are removed.
				for i := range r.IntN(3) {
					e.Batch().Reset()
					for k := range 12 {
						e.Batch().Add(h.tokens[n-1], runtime.Pos(12*i+k), 5, false)
					}
					if err := e.Decode(); err != nil {
						t.Fatal(what, err)
					}
					e.SeqRemove(5, runtime.Pos(12*i+2), runtime.Pos(12*i+7))
				}
				h.compute(1, 0, n, 1+r.IntN(n))
				if !same(h.rows(1), want) {
					t.Fatalf("%s: in steps the answer is another one", what)
				}
				// A cut, which lies between images or in one, and the rest again.
				cut := r.IntN(n)
				if !e.SeqRemove(1, runtime.Pos(cut), -1) {
					t.Fatalf("%s: it cannot be cut back to %d", what, cut)
				}
				h.wantEnd(1, cut)
				h.compute(1, cut, n, 1+r.IntN(40))
				if !same(h.rows(1), want) {
					t.Fatalf("%s: cut back to %d the answer is another one", what, cut)
				}
				// A fork.
				cut = r.IntN(n)
				e.SeqCopy(1, 2, 0, runtime.Pos(cut))
				h.wantEnd(2, cut)
				h.compute(2, cut, n, 1+r.IntN(40))
				if !same(h.rows(2), want) {
					t.Fatalf("%s: with %d shared rows the answer is another one", what, cut)
				}
				// Parts, restored into another sequence, and the rest computed.
				var parts [][]byte
				ends := []int{0}
				for ends[len(ends)-1] < n-1 && len(ends) < 6 {
					from := ends[len(ends)-1]
					to := from + 1 + r.IntN(n-1-from)
					parts = append(parts, snapshot(t, e, 2, 3, from, to))
					ends = append(ends, to)
				}
				e.SeqRemove(2, 0, -1)
				if r.IntN(2) == 0 {
					e.SeqRemove(1, 0, -1)
				}
				for i, p := range parts {
					if err := e.Restore(p, 2, 3); err != nil {
						t.Fatalf("%s: part %d … %d: %v", what, ends[i], ends[i+1], err)
					}
					h.wantEnd(2, ends[i+1])
				}
				h.compute(2, ends[len(ends)-1], n, 1+r.IntN(40))
				if !same(h.rows(2), want) {
					t.Fatalf("%s: restored in parts %v the answer is another one", what, ends)
				}
			}
		})
	}
}

// snapshot stores rows [p0, p1) of s.
func snapshot(t *testing.T, e runtime.Engine, s, scratch runtime.Seq, p0, p1 int) []byte {
	t.Helper()
	n, err := e.SnapshotSize(s, runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, n)
	if got, err := e.Snapshot(buf, s, scratch, runtime.Pos(p0), runtime.Pos(p1)); err != nil || got != n {
		t.Fatalf("%d bytes of %d: %v", got, n, err)
	}
	return buf
}

// TestGridsGivenUp: a step that fails within an image leaves what was computed of it before.
func TestGridsGivenUp(t *testing.T) {
	e := openGrids(t, ggufgen.Qwen2VL, ggufgen.Qwen2VLMerger)
	h := twoPictures(t, e)
	n := len(h.tokens)
	h.compute(0, 0, n, n)
	want := h.rows(0)
	p := h.segments[1]
	for _, have := range []int{p.At, p.At + 1, p.At + p.N/2, p.At + p.N - 1} {
		e.SeqRemove(1, 0, -1)
		h.compute(1, 0, have, 50)
		for _, full := range []bool{false, true} {
			b := e.Batch()
			b.Reset()
			wanted := runtime.ErrAborted
			if full { // the rows behind the images find no cells
				wanted = runtime.ErrKVFull
				fill := e.Capabilities().ContextTokens - 2*n - have
				for from := 0; from < fill; from += 512 {
					b.Reset()
					for k := from; k < min(from+512, fill); k++ {
						b.Add(h.tokens[n-1], runtime.Pos(k), 2, false)
					}
					if err := e.Decode(); err != nil {
						t.Fatal(err)
					}
				}
				b.Reset()
				h.add(1, have, n-1)
				for k := range have + 2 { // one row more than cells
					b.Add(h.tokens[n-1], runtime.Pos(k), 3, false)
				}
			} else {
				h.add(1, have, min(have+20, n))
				b.Cancelled = func() bool { e.Abort(); return false }
			}
			if err := e.Decode(); !errors.Is(err, wanted) {
				t.Fatalf("behind %d rows: %v, want %v", have, err, wanted)
			}
			if !full && !e.SeqRemove(1, runtime.Pos(have), -1) {
				t.Fatalf("it cannot be cut back to %d", have)
			}
			h.wantEnd(1, have)
			if _, last := e.SeqRange(3); last >= 0 {
				t.Fatalf("sequence 3 ends at %d", last)
			}
			e.SeqRemove(2, 0, -1)
		}
		h.compute(1, have, n, 7)
		if !same(h.rows(1), want) {
			t.Fatalf("given up behind %d rows, the answer is another one", have)
		}
	}
	// Without a sequence to spare it is computed to its end.
	have := p.At + 3
	e.SeqRemove(1, 0, -1)
	h.compute(1, 0, have, 50)
	e.Batch().Reset()
	for s := range runtime.Seq(e.Capabilities().MaxSequences) {
		if s > 1 {
			e.Batch().Add(h.tokens[n-1], 0, s, false)
		}
	}
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	b := e.Batch()
	b.Reset()
	h.add(1, have, p.At+p.N)
	b.Cancelled = func() bool { e.Abort(); return false }
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	h.compute(1, p.At+p.N, n, 7)
	if !same(h.rows(1), want) {
		t.Error("the answer is another one")
	}
}

// TestGridsRefused: what is no part of a sequence with images is refused, and changes none.
func TestGridsRefused(t *testing.T) {
	o := gridOptions(t, ggufgen.Qwen3VL, ggufgen.Qwen3VLMerger)
	e, err := llama.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Capabilities().CanShift {
		t.Error("positions of several dimensions can be shifted")
	}
	h := twoPictures(t, e)
	n := len(h.tokens)
	h.compute(0, 0, n, n)
	want := h.rows(0)
	inside := h.segments[1].At + 2
	head, tail := snapshot(t, e, 0, 3, 0, inside), snapshot(t, e, 0, 3, inside, n-1)
	text := newHistory(t, e, "a text of some words without a picture, which is as long as an image is in rows")
	text.compute(1, 0, len(text.tokens), 100)
	words := snapshot(t, e, 1, 3, 0, len(text.tokens))
	refused := func(what string, b []byte, s runtime.Seq) {
		t.Helper()
		first, last := e.SeqRange(s)
		if err := e.Restore(b, s, 3); !errors.Is(err, runtime.ErrSnapshot) {
			t.Errorf("%s: %v, want ErrSnapshot", what, err)
		}
		if a, b := e.SeqRange(s); a != first || b != last {
			t.Errorf("%s: it holds [%d, %d], before [%d, %d]", what, a, b, first, last)
		}
		if _, last := e.SeqRange(3); last >= 0 {
			t.Errorf("%s: the scratch sequence ends at %d", what, last)
		}
	}
	refused("rows that are there", tail, 0)
	refused("rows behind a text of other rows", tail, 1)
	for i := range 40 { // the list of images
		bad := slices.Clone(head)
		bad[i] ^= 0x81
		if err := e.Restore(bad, 2, 3); err != nil && !errors.Is(err, runtime.ErrSnapshot) {
			t.Errorf("byte %d: %v", i, err)
		}
		e.SeqRemove(2, 0, -1)
	}
	for i := range 60 {
		refused(fmt.Sprintf("%d bytes", i), head[:i], 2)
	}
	// Rows of an image where others are.
	b := e.Batch()
	b.Reset()
	q := h.segments[1]
	b.AddImage(h.tokens[q.At], runtime.Pos(q.At+3), 0, &q, 0)
	if err := e.Decode(); !errors.Is(err, runtime.ErrDecode) {
		t.Errorf("an image within another: %v", err)
	}
	h.wantEnd(0, n)
	if !same(h.rows(0), want) {
		t.Error("it has changed the sequence")
	}
	// Without a projector the model knows no images; texts are the same.
	o.Projector = ""
	blind, err := llama.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer blind.Close()
	if err := blind.Restore(head, 2, 3); !errors.Is(err, runtime.ErrSnapshot) {
		t.Errorf("a snapshot with images, of a model that reads none: %v", err)
	}
	if err := blind.Restore(words, 2, 3); err != nil {
		t.Errorf("a snapshot of a text: %v", err)
	}
}

// TestContractOfGrids: with a projector, an engine of positions in several dimensions is one like the others.
func TestContractOfGrids(t *testing.T) {
	for _, k := range gridKinds[1:] {
		t.Run(string(k.kind), func(t *testing.T) {
			with := gridOptions(t, k.arch, k.kind)
			enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
				o.ModelPath, o.Projector, o.Threads = with.ModelPath, with.Projector, 1
				e, err := llama.Open(o)
				if err != nil {
					t.Fatal(err)
				}
				return e
			})
		})
	}
}

// TestImagesWithStates: a model with recurrent layers reads images too, with positions of several dimensions or one. A
// history that was computed in steps of any size, copied where it ends, also inside an image, or stored and restored
// there, goes on as the one that was computed at once.
func TestImagesWithStates(t *testing.T) {
	t.Run("qwen35", func(t *testing.T) { imagesWithStates(t, ggufgen.Qwen35, ggufgen.Qwen35Merger) })
	t.Run("lfm2", func(t *testing.T) { imagesWithStates(t, ggufgen.LFM2, ggufgen.LFM2Vision) })
}

func imagesWithStates(t *testing.T, arch ggufgen.Arch, kind ggufgen.ProjectorKind) {
	e := openGrids(t, arch, kind)
	if !e.Capabilities().Seals {
		t.Fatal("it has no states")
	}
	h := twoPictures(t, e)
	n := len(h.tokens)
	last := func() []float32 { return slices.Clone(e.Logits(e.Batch().Len() - 1)) }
	h.compute(0, 0, n, n)
	want := last()
	other := newHistory(t, e, [2]int{60, 100}, "look at this ", [2]int{70, 120}, [2]int{100, 60}, " and tell me",
		[2]int{40, 40}, "what")
	other.compute(1, 0, n, n)
	if near(want, last()) {
		t.Error("another picture's answer is the same")
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 20 {
		e.SeqRemove(1, 0, -1)
		e.SeqRemove(2, 0, -1)
		end := 1 + r.IntN(n-1)
		h.compute(1, 0, end, 1+r.IntN(n))
		e.SeqCopy(1, 2, 0, runtime.Pos(end))
		h.wantEnd(2, end)
		stored := snapshot(t, e, 1, 3, 0, end)
		h.compute(1, end, n, 1+r.IntN(40))
		if !near(last(), want) {
			t.Fatalf("seed %d, round %d: behind %d rows the answer is another one", seed, round, end)
		}
		h.compute(2, end, n, 1+r.IntN(40))
		if !near(last(), want) {
			t.Fatalf("seed %d, round %d: copied behind %d rows the answer is another one", seed, round, end)
		}
		e.SeqRemove(1, 0, -1)
		if err := e.Restore(stored, 1, 3); err != nil {
			t.Fatal(err)
		}
		h.wantEnd(1, end)
		h.compute(1, end, n, 1+r.IntN(40))
		if !near(last(), want) {
			t.Fatalf("seed %d, round %d: restored behind %d rows the answer is another one", seed, round, end)
		}
	}
	// Without cells for all of a step nothing of it is computed.
	e.SeqRemove(1, 0, -1)
	e.SeqRemove(2, 0, -1)
	have := h.segments[1].At + 3
	h.compute(1, 0, have, 50)
	fill := e.Capabilities().ContextTokens - 2*n + 1
	for from := 0; from < fill; from += 256 {
		e.Batch().Reset()
		for k := from; k < min(from+256, fill); k++ {
			e.Batch().Add(h.tokens[n-1], runtime.Pos(k), 2, false)
		}
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
	}
	e.Batch().Reset()
	h.add(1, have, n)
	if err := e.Decode(); !errors.Is(err, runtime.ErrKVFull) {
		t.Fatalf("%v, want ErrKVFull", err)
	}
	h.wantEnd(1, have)
	e.SeqRemove(2, 0, -1)
	h.compute(1, have, n, 9)
	if !near(last(), want) {
		t.Error("behind a step without cells the answer is another one")
	}
}
