//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_attention

package llama

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"
	"pgregory.net/rapid"
)

// ggml's numbers of the types a cache may have here.
const (
	typeF32  = 0
	typeF16  = 1
	typeQ4_0 = 2
	typeQ8_0 = 8
	typeBF16 = 30
)

const hidden = 0xFC00 // a half's -infinity

// pack encodes values as a type and returns the decoded values.
func pack(kind int, values []float32) (bits []byte, kept []float64) {
	if kind == typeQ8_0 || kind == typeQ4_0 {
		for b := range slices.Chunk(values, 32) {
			bits, kept = packBlock(kind, b, bits, kept)
		}
		return bits, kept
	}
	for _, x := range values {
		switch kind {
		case typeF32:
			bits = binary.LittleEndian.AppendUint32(bits, math.Float32bits(x))
			kept = append(kept, float64(x))
		case typeF16:
			h := float16.Fromfloat32(x)
			bits = binary.LittleEndian.AppendUint16(bits, h.Bits())
			kept = append(kept, float64(h.Float32()))
		case typeBF16:
			u := uint16(math.Float32bits(x) >> 16)
			bits = binary.LittleEndian.AppendUint16(bits, u)
			kept = append(kept, float64(math.Float32frombits(uint32(u)<<16)))
		}
	}
	return bits, kept
}

// packBlock appends 32 values in Q8_0 or Q4_0: a scale in half precision and multiples of it.
func packBlock(kind int, b []float32, bits []byte, kept []float64) ([]byte, []float64) {
	most := float32(127)
	if kind == typeQ4_0 {
		most = 7
	}
	var top float32
	for _, x := range b {
		top = max(top, float32(math.Abs(float64(x))))
	}
	scale := float16.Fromfloat32(top / most)
	bits = binary.LittleEndian.AppendUint16(bits, scale.Bits())
	var q [32]int
	for i, x := range b {
		if scale.Float32() > 0 {
			q[i] = int(math.Round(float64(min(max(x/scale.Float32(), -most), most))))
		}
		kept = append(kept, float64(scale.Float32())*float64(q[i]))
	}
	for i := range 32 {
		switch {
		case kind == typeQ8_0:
			bits = append(bits, byte(int8(q[i])))
		case i < 16:
			bits = append(bits, byte(q[i]+8)|byte(q[i+16]+8)<<4)
		}
	}
	return bits, kept
}

func normal(rng *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * scale)
	}
	return x
}

// drawn is an attention case and its K and V as the cache holds them.
type drawn struct {
	attentionCase
	keys, values []float64
}

func draw(rng *rand.Rand, kind, width, rows, cells, heads, kvHeads int) *drawn {
	return drawValues(rng, kind, width, width, rows, cells, heads, kvHeads)
}

// drawValues has values of another width than the keys.
func drawValues(rng *rand.Rand, kind, width, vWidth, rows, cells, heads, kvHeads int) *drawn {
	d := &drawn{attentionCase: attentionCase{width: width, vWidth: vWidth, rows: rows, cells: cells, heads: heads,
		kvHeads: kvHeads, kind: kind, scale: float32(1 / math.Sqrt(float64(width)))}}
	d.q = normal(rng, rows*heads*width, 2)
	d.k, d.keys = pack(kind, normal(rng, cells*kvHeads*width, 1.5))
	d.v, d.values = pack(kind, normal(rng, cells*kvHeads*vWidth, 1))
	return d
}

// slope is ALiBi's of head h (Press et al. 2022): for n heads, a power of two, the geometric sequence that begins with
// its ratio 2^(-maxBias/n); the heads beyond the largest such n have every other one of the sequence for 2n.
func (d *drawn) slope(h int) float64 {
	if d.maxBias == 0 {
		return 1
	}
	n := 1 << (bits.Len(uint(d.heads)) - 1)
	if h < n {
		return math.Exp2(-float64(d.maxBias) * float64(h+1) / float64(n))
	}
	return math.Exp2(-float64(d.maxBias) * float64(2*(h-n)+1) / float64(2*n))
}

// see sets the mask: row r sees the cells for which sees is true.
func (d *drawn) see(sees func(row, cell int) bool) {
	d.mask = make([]uint16, d.rows*d.cells)
	for r := range d.rows {
		for c := range d.cells {
			if !sees(r, c) {
				d.mask[r*d.cells+c] = hidden
			}
		}
	}
}

// reference is the definition in float64.
func (d *drawn) reference() []float64 {
	out := make([]float64, d.rows*d.heads*d.vWidth)
	for r := range d.rows {
		for h := range d.heads {
			q := d.q[(r*d.heads+h)*d.width:][:d.width]
			kv := h / (d.heads / d.kvHeads)
			scores := make([]float64, d.cells)
			top := math.Inf(-1)
			for c := range d.cells {
				for i, x := range d.keys[(c*d.kvHeads+kv)*d.width:][:d.width] {
					scores[c] += float64(q[i]) * x
				}
				scores[c] *= float64(d.scale)
				if d.softcap != 0 {
					scores[c] = float64(d.softcap) * math.Tanh(scores[c]/float64(d.softcap))
				}
				if d.mask != nil {
					scores[c] += d.slope(h) * float64(float16.Frombits(d.mask[r*d.cells+c]).Float32())
				}
				top = max(top, scores[c])
			}
			if math.IsInf(top, -1) {
				continue
			}
			var total float64
			if d.sinks != nil {
				top = max(top, float64(d.sinks[h]))
				total = math.Exp(float64(d.sinks[h]) - top)
			}
			o := out[(r*d.heads+h)*d.vWidth:][:d.vWidth]
			for c, s := range scores {
				p := math.Exp(s - top)
				total += p
				for i, x := range d.values[(c*d.kvHeads+kv)*d.vWidth:][:d.vWidth] {
					o[i] += p * x
				}
			}
			for i := range o {
				o[i] /= total
			}
		}
	}
	return out
}

// rounded is the error of the definition with its queries rounded to the cache's type: ggml's, where it computes few
// rows. Newer ggml computes the scores of many rows in float32.
func (d *drawn) rounded(want []float64) float64 {
	if d.kind != typeF16 && d.kind != typeBF16 {
		return 0
	}
	r := *d
	r.q = make([]float32, len(d.q))
	for i, q := range d.q {
		if d.kind == typeF16 {
			r.q[i] = float16.Fromfloat32(q).Float32()
		} else {
			r.q[i] = math.Float32frombits((math.Float32bits(q) + 0x8000) &^ 0xffff)
		}
	}
	worst := 0.0
	for i, x := range r.reference() {
		worst = max(worst, math.Abs(x-want[i]))
	}
	return worst
}

// far is the largest difference between got and want, whose entries are at most about 1.
func far(got []float32, want []float64) (worst float64) {
	for i := range got {
		d := math.Abs(float64(got[i]) - want[i])
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst
}

// The kernel against the definition, beside ggml's: it rounds the gathered values to halves, ours does not.
func TestAttention(t *testing.T) {
	names := ownKernels(t)
	for i, c := range []struct{ kind, width, rows, cells, heads, kvHeads, vWidth int }{
		{typeF16, 64, 1, 256, 9, 3, 0}, {typeF16, 64, 6, 640, 9, 3, 0}, {typeF16, 128, 3, 256, 16, 4, 0},
		{typeF16, 32, 40, 256, 6, 2, 0},
		{typeF16, 80, 5, 256, 4, 4, 0}, {typeF16, 96, 5, 256, 6, 1, 0}, {typeF16, 256, 3, 256, 8, 1, 0},
		{typeBF16, 64, 7, 256, 8, 2, 0}, {typeF32, 64, 7, 256, 8, 2, 0}, {typeF32, 64, 1, 1344, 9, 3, 0},
		{typeF16, 64, 70, 256, 3, 1, 0},
		{typeF16, 64, 1, 2560, 9, 3, 0}, {typeF16, 128, 2, 1344, 8, 2, 0}, // several parts
		{typeF16, 64, 40, 1344, 3, 1, 0},
		{typeF16, 64, 5, 2560, 9, 3, 0}, {typeQ8_0, 64, 20, 2560, 6, 2, 0}, // a few rows together
		{typeQ8_0, 64, 3, 640, 9, 3, 0}, {typeQ4_0, 64, 3, 640, 9, 3, 0}, {typeQ8_0, 128, 1, 1344, 8, 2, 0},
		{typeQ4_0, 96, 20, 256, 4, 2, 0},
		{typeF16, 48, 3, 256, 4, 4, 0}, {typeBF16, 40, 5, 256, 4, 2, 0}, {typeF32, 72, 20, 640, 4, 4, 0},
		{typeF16, 512, 3, 256, 8, 2, 0}, {typeQ8_0, 160, 3, 256, 4, 2, 0},
		{typeF16, 576, 6, 640, 12, 1, 512}, {typeF16, 192, 3, 1344, 6, 6, 128}, // latent attention, and its prompts
		{typeF16, 64, 3, 256, 4, 4, 100},
	} {
		if c.vWidth == 0 {
			c.vWidth = c.width
		}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(c.cells), uint64(c.width)))
			d := drawValues(rng, c.kind, c.width, c.vWidth, c.rows, c.cells, c.heads, c.kvHeads)
			checks := 0
			check := func(what string) {
				t.Helper()
				checks++
				if testing.Short() && (checks+i/2)%2 == 0 {
					return
				}
				want := d.reference()
				for _, name := range names {
					useOwn(t, name)
					for _, threads := range []int{1, 3} {
						if !testing.Short() || (threads == 1) == (i%2 == 0) {
							d.compare(t, fmt.Sprintf("%s, %s, %d threads", what, name, threads), threads, want)
						}
					}
				}
			}
			check("no mask")
			d.see(func(r, c int) bool { return c <= d.cells-d.rows+r })
			check("causal")
			owner := make([]int, d.cells)
			for i := range owner {
				owner[i] = rng.IntN(3)
			}
			d.see(func(r, c int) bool { return owner[c] == r%3 })
			check("three sequences")
			d.see(func(r, c int) bool { return r%2 == 0 && c == 7 })
			check("one cell, or none")
			for i := range d.mask {
				d.mask[i] = float16.Fromfloat32(float32(rng.IntN(5)) / 4).Bits()
			}
			check("biases")
			d.sinks = normal(rand.New(rand.NewPCG(uint64(c.heads), 5)), d.heads, 3)
			check("sinks")
			d.softcap = 4
			check("a soft cap and sinks")
			d.sinks, d.maxBias = nil, 8
			check("a soft cap and slopes")
			d.softcap = 0
			check("slopes")
			d.maxBias = 0
			d.q = normal(rng, len(d.q), 60)
			check("scores that differ by hundreds")
			// As models have them: a column far from zero in every cell, beside which the others are small.
			for _, far := range []float32{10, 24, 40, 100, 400} {
				d.q = normal(rng, len(d.q), 2)
				keys := normal(rng, len(d.keys), 1.5)
				for i := 3; i < len(keys); i += d.width {
					keys[i] += far
				}
				d.k, d.keys = pack(c.kind, keys)
				check(fmt.Sprintf("keys with a column at %v", far))
			}
		})
	}
}

// compare holds our result, and where it is not near enough ggml's, against the definition's.
func (d *drawn) compare(t *testing.T, what string, threads int, want []float64) {
	t.Helper()
	attentionComputed()
	got := far(attention(&d.attentionCase, threads), want)
	if !attentionComputed() {
		t.Errorf("%s: ggml computed it", what)
	}
	if got <= 2e-6 {
		return
	}
	ownAttention(false)
	theirs := far(attention(&d.attentionCase, threads), want)
	ownAttention(true)
	// Where ggml is as exact, the order of a sum decides.
	if got > 2*theirs && got > d.rounded(want) {
		t.Errorf("%s: off by %.2g, ggml's by %.2g, with rounded queries by %.2g", what, got, theirs, d.rounded(want))
	}
}

// A query that is no number spoils its own row only, wherever it lies among the four that are computed together.
func TestAttentionBesideNoNumber(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		const rows, width = 28, 64 // groups of 7
		for spoilt := range rows {
			rng := rand.New(rand.NewPCG(uint64(spoilt), 0))
			d := draw(rng, typeF16, width, rows, 640, 1, 1)
			want := attention(&d.attentionCase, 1)
			for i := range width {
				d.q[spoilt*width+i] = float32(math.NaN())
			}
			got := attention(&d.attentionCase, 1)
			for i := range want {
				if i/width != spoilt && got[i] != want[i] {
					t.Fatalf("row %d beside row %d of NaN: %v, want %v", i/width, spoilt, got[i], want[i])
				}
			}
		}
	})
}

// Nor does a key that is no number spoil the rows that do not see its cell, though it lies in their last block.
func TestAttentionBeforeNoNumber(t *testing.T) {
	eachKernels(t, func(t *testing.T) {
		const rows, width, cells = 28, 64, 64
		for spoilt := cells - rows + 1; spoilt < cells; spoilt++ {
			rng := rand.New(rand.NewPCG(uint64(spoilt), 1))
			d := draw(rng, typeF16, width, rows, cells, 1, 1)
			d.q = normal(rng, len(d.q), 200) // a maximum that is missed counts
			d.see(func(r, c int) bool { return c <= cells-rows+r })
			want := attention(&d.attentionCase, 1)
			for i := range width {
				binary.LittleEndian.PutUint16(d.k[(spoilt*width+i)*2:], 0x7e00)
			}
			got := attention(&d.attentionCase, 1)
			for i := range (spoilt - cells + rows) * width {
				if got[i] != want[i] {
					t.Fatalf("row %d, a key of NaN in cell %d: %v, want %v", i/width, spoilt, got[i], want[i])
				}
			}
		}
	})
}

// A row's result depends on its query and the contents of its positions, bit for bit. It does not depend on other rows,
// other cells, the order of cells where positions are known, or the number of threads: a conversation must not change
// because another sequence joined, or because it was restored into other cells.
func TestAttentionOfARowIsItsOwn(t *testing.T) {
	names := ownKernels(t)
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		shapes := [][3]int{{64, 9, 3}, {128, 8, 8}, {32, 6, 2}, {72, 4, 2}}
		s := shapes[rapid.IntRange(0, len(shapes)-1).Draw(t, "shape")]
		width, heads, kvHeads := s[0], s[1], s[2]
		kind := rapid.SampledFrom([]int{typeF16, typeF16, typeBF16, typeQ8_0, typeQ4_0}).Draw(t, "kind")
		rows, cells := rapid.IntRange(1, 40).Draw(t, "rows"), 64*rapid.IntRange(1, 48).Draw(t, "cells/64")
		if width%32 != 0 && (kind == typeQ8_0 || kind == typeQ4_0) {
			kind = typeF32
		}
		d := draw(rng, kind, width, rows, cells, heads, kvHeads)
		d.softcap = rapid.SampledFrom([]float32{0, 0, 20}).Draw(t, "soft cap")
		d.maxBias = rapid.SampledFrom([]float32{0, 0, 8}).Draw(t, "bias")
		if rapid.Bool().Draw(t, "sinks") {
			d.sinks = normal(rng, heads, 2)
		}
		owners := rapid.IntRange(1, 4).Draw(t, "sequences")
		owner, row := make([]int, cells), make([]int, rows)
		for i := range owner {
			owner[i] = rng.IntN(owners)
		}
		for i := range row {
			row[i] = rng.IntN(owners)
		}
		d.see(func(r, c int) bool { return owner[c] == row[r] && c < cells-rows+r })

		r := rapid.IntRange(0, rows-1).Draw(t, "row")
		alone := draw(rng, kind, width, 1, cells, heads, kvHeads)
		copy(alone.q, d.q[r*heads*width:][:heads*width])
		alone.softcap, alone.maxBias, alone.sinks = d.softcap, d.maxBias, d.sinks
		alone.see(func(_, c int) bool { return false })
		places := make([]int, cells)
		for i := range places {
			places[i] = i
		}
		switch rapid.SampledFrom([]string{"in order", "shuffled", "turned"}).Draw(t, "places") {
		case "shuffled":
			rng.Shuffle(cells, func(i, j int) { places[i], places[j] = places[j], places[i] })
			alone.positions = make([]int32, cells)
		case "turned":
			by := rng.IntN(cells)
			for i := range places {
				places[i] = (i + by) % cells
			}
			alone.positions = make([]int32, cells)
		}
		// The rows of an image share a position and are in the order of their lines.
		image := rapid.SampledFrom([]int{1, 7}).Draw(t, "rows at a position")
		if image > 1 && alone.positions != nil {
			alone.lines = make([]int32, cells)
		}
		stride, at := len(d.k)/cells, rng.IntN(2)
		for c := range cells {
			if d.mask[r*cells+c] == hidden {
				continue
			}
			copy(alone.k[places[at]*stride:], d.k[c*stride:][:stride])
			copy(alone.v[places[at]*stride:], d.v[c*stride:][:stride])
			alone.mask[places[at]] = 0
			if alone.positions != nil {
				alone.positions[places[at]] = int32(c / image)
			}
			if alone.lines != nil {
				alone.lines[places[at]] = int32(c % image)
			}
			at++
			if gap := rng.IntN(4); gap == 0 && at < c { // somewhere else, with other gaps
				at++
			}
		}
		amongOthers, byItself := rapid.IntRange(1, 4).Draw(t, "threads"), rapid.IntRange(1, 3).Draw(t, "threads alone")
		for _, name := range names {
			useOwn(t, name)
			want := attention(&d.attentionCase, amongOthers)[r*heads*width:][:heads*width]
			if got := attention(&alone.attentionCase, byItself); !slices.Equal(got, want) {
				t.Errorf("%s, row %d: %v… among others, %v… alone", name, r, want[:4], got[:4])
			}
		}
	})
}

// The rows of a prompt share the list of the last one where they see its beginning. Each is what it would be alone over
// the same cells, bit for bit: in any order of the pool, with positions that occur twice, with a window, with biases.
func TestAttentionOfAPromptsRows(t *testing.T) {
	eachKernels(t, func(t *testing.T) { rapid.Check(t, testAttentionOfAPromptsRows) })
}

func testAttentionOfAPromptsRows(t *rapid.T) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	const width, heads, kvHeads = 32, 4, 2
	rows, cells := rapid.IntRange(2, 70).Draw(t, "rows"), 64*rapid.IntRange(2, 40).Draw(t, "cells/64")
	d := draw(rng, typeF16, width, rows, cells, heads, kvHeads)
	position := make([]int32, cells)
	for c := range position {
		position[c] = int32(c)
	}
	order := rapid.SampledFrom([]string{"in order", "turned", "shuffled", "twice", "images"}).Draw(t, "order")
	switch order {
	case "turned":
		by := rng.IntN(cells)
		position = slices.Concat(position[by:], position[:by])
	case "shuffled", "images":
		rng.Shuffle(cells, func(i, j int) { position[i], position[j] = position[j], position[i] })
	case "twice":
		for c := range position {
			if position[c] = int32(rng.IntN(cells)); c > 0 && rng.IntN(3) > 0 {
				position[c] = (position[c-1] + 1) % int32(cells)
			}
		}
	}
	if rng.IntN(2) == 0 {
		d.positions = position
		if order == "images" {
			d.positions, d.lines = make([]int32, cells), make([]int32, cells)
			for c, at := range position {
				d.positions[c], d.lines[c] = at/9, at%9
			}
		}
	}
	window := rapid.SampledFrom([]int{cells, cells, 40}).Draw(t, "window")
	d.see(func(r, c int) bool {
		at, last := int(position[c]), cells-rows+r
		return at <= last && at > last-window
	})
	if rapid.Bool().Draw(t, "biased") {
		r, c := rng.IntN(rows), rng.IntN(cells)
		if d.mask[r*cells+c] != hidden {
			d.mask[r*cells+c] = float16.Fromfloat32(-0.5).Bits()
		}
	}
	together := d.attentionCase
	together.layers = rapid.IntRange(1, 2).Draw(t, "layers")
	all := attention(&together, rapid.IntRange(1, 3).Draw(t, "threads"))
	for _, r := range []int{0, rng.IntN(rows), rows - 1} {
		alone := d.attentionCase
		alone.rows, alone.q, alone.mask = 1, d.q[r*heads*width:][:heads*width], d.mask[r*cells:][:cells]
		want := attention(&alone, 1)
		if got := all[r*heads*width:][:heads*width]; !slices.Equal(got, want) {
			t.Fatalf("row %d of %d: %v… among others, %v… alone", r, rows, got[:4], want[:4])
		}
	}
}

// go test -bench Attention ./runtime/llama: ours and ggml's on one thread, ns per row, head and cell it may see.
func BenchmarkAttention(b *testing.B) {
	for _, c := range []struct {
		name                               string
		width, rows, cells, heads, kvHeads int
		sees                               func(r, c int) bool
	}{
		{"decode", 64, 1, 2048, 9, 3, func(int, int) bool { return true }},
		{"decode among 8,192 cells of others", 64, 1, 10240, 9, 3, func(_, c int) bool { return c%5 == 0 }},
		{"decode, heads of 128", 128, 1, 2048, 32, 8, func(int, int) bool { return true }},
		{"chunk of 16", 64, 16, 2048, 9, 3, func(r, c int) bool { return c <= 2032+r }},
		{"decode behind 16,384", 64, 1, 16384, 9, 3, func(int, int) bool { return true }},
		{"prompt of 512", 64, 512, 1024, 9, 3, func(r, c int) bool { return c <= 512+r }},
	} {
		rng := rand.New(rand.NewPCG(1, 2))
		d := draw(rng, typeF16, c.width, c.rows, c.cells, c.heads, c.kvHeads)
		d.see(c.sees)
		seen := 0
		for _, m := range d.mask {
			if m == 0 {
				seen++
			}
		}
		for _, name := range []string{"avx512", "avx2", "i8mm", "neon", "ggml"} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				defer withKernels(b, name)()
				for range b.N {
					attention(&d.attentionCase, 1)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(seen*c.heads), "ns/cell")
			})
		}
	}
}
