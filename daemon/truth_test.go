//go:build cgo && (llama_engine || llama_system)

package daemon

import (
	"errors"
	"math"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/models"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// What a sequence says does not depend on where its cells lie. Logits are bit-equal to those of a sequence that was
// never evicted, in whatever order its cells come back: attention adds up in the order of positions. Without flash
// attention, which is ggml's then (and was ours before it knew positions), it adds up in the order of cells, and what
// becomes of a last bit is the model's:
//
//   - With float32 weights the logits stay within 1e-3: the attention's weights are rounded to halves.
//   - With Q8_0 weights what goes into each matrix is rounded to 8 bits, and a value at a border goes to the other side
//     by 1/127 of its block's largest: up to 1e-2 of the largest logit. The tokens are the same.
const truthSteps = 256

// pool is an engine under test.
type pool struct {
	*testing.T
	runtime.Engine
}

func openPool(t *testing.T, path, flash string) *pool {
	t.Helper()
	e, err := llama.Open(runtime.Options{ModelPath: path, ContextTokens: 2048, Sequences: 16, Threads: 1,
		FlashAttn: flash})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return &pool{t, e}
}

// feed computes tokens at the end of seq, in one batch, and returns the last one's logits.
func (p *pool) feed(seq runtime.Seq, tokens ...runtime.Token) []float32 {
	p.Helper()
	_, last := p.SeqRange(seq)
	b := p.Batch()
	b.Reset()
	for i, tok := range tokens {
		b.Add(tok, last+1+runtime.Pos(i), seq, i == len(tokens)-1)
	}
	if err := p.Decode(); err != nil {
		p.Fatal(err)
	}
	return p.Logits(len(tokens) - 1)
}

// step is a decoded token and the logits it was drawn from.
type step struct {
	token  runtime.Token
	logits []float32
}

// greedy decodes on from a sequence whose next token is first.
func (p *pool) greedy(seq runtime.Seq, first runtime.Token) (out []step) {
	p.Helper()
	for range truthSteps {
		logits := slices.Clone(p.feed(seq, first))
		first = 0
		for t := range logits {
			if logits[t] > logits[first] {
				first = runtime.Token(t)
			}
		}
		out = append(out, step{first, logits})
	}
	return out
}

// same holds two runs against each other: the same tokens, and logits no farther apart than limit times a row's
// largest.
func (p *pool) same(what string, got, want []step, limit float64) {
	p.Helper()
	far := 0.0
	for i := range want {
		if got[i].token != want[i].token {
			p.Fatalf("%s: token %d is %d, never evicted %d", what, i, got[i].token, want[i].token)
		}
		large, apart := 0.0, 0.0
		for k, w := range want[i].logits {
			large = max(large, math.Abs(float64(w)))
			apart = max(apart, math.Abs(float64(got[i].logits[k]-w)))
		}
		if far = max(far, apart/large); apart > limit*large {
			p.Fatalf("%s: step %d: logits are %.2g apart, of %.2g at most", what, i, apart, large)
		}
	}
	p.Logf("%s: %d steps, logits at most %.2g apart, relatively", what, len(want), far)
}

// save is a snapshot of the cells of seq at [p0, p1).
func (p *pool) save(seq runtime.Seq, p0, p1 int) []byte {
	p.Helper()
	size, err := p.SnapshotSize(seq, runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		p.Fatal(err)
	}
	b := make([]byte, size)
	n, err := p.Snapshot(b, seq, 15, runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		p.Fatal(err)
	}
	return b[:n]
}

func (p *pool) restore(seq runtime.Seq, snapshots ...[]byte) {
	p.Helper()
	for _, b := range snapshots {
		if err := p.Restore(b, seq, 15); err != nil {
			p.Fatal(err)
		}
	}
}

// holes fills the pool's beginning with sequences of some cells each and gives every other one back.
func (p *pool) holes(tokens []runtime.Token) {
	p.Helper()
	for s := runtime.Seq(4); s < 12; s++ {
		p.feed(s, tokens[:9+s]...)
	}
	for s := runtime.Seq(4); s < 12; s += 2 {
		p.SeqRemove(s, 0, -1)
	}
}

func (p *pool) clear() {
	for s := range runtime.Seq(16) {
		p.SeqRemove(s, 0, -1)
	}
}

func (p *pool) tokens(text string) []runtime.Token {
	p.Helper()
	out, err := p.Vocab().Tokenize(nil, text, true, true)
	if err != nil {
		p.Fatal(err)
	}
	return out
}

const truthPrompt = "<|im_start|>user\nA shop has 48 apples. It sells 19 of them and then buys 26 more. How many " +
	"apples does it have?<|im_end|>\n" +
	"<|im_start|>assistant\nIt has 55 apples.<|im_end|>\n<|im_start|>user\nSort these numbers: 41, 7, 93, 15, 62, " +
	"28, 84, 30.<|im_end|>\n<|im_start|>assistant\n"

func TestCellsInAnotherOrder(t *testing.T) {
	tiny := func(t *testing.T) string {
		path, err := models.Default()
		if errors.Is(err, models.ErrNone) {
			t.Skip(err) // asked for, by a build tag
		} else if err != nil {
			t.Fatal(err)
		}
		return path
	}
	exact := func(t *testing.T) string { return withFloats(t, tiny(t)) }
	generated := func(t *testing.T) string {
		floats := ggufgen.Tiny()
		floats.Type = ggufgen.F32
		return ggufgen.Cached(t, floats)
	}
	for _, c := range []struct {
		name  string
		path  func(*testing.T) string
		flash string
		limit float64 // where attention is ggml's
	}{
		{"uma-tiny", tiny, "on", 3e-2},
		{"uma-tiny without flash attention", tiny, "off", 3e-2},
		{"uma-tiny, its weights as float32", exact, "on", 1e-4},
		{"uma-tiny, its weights as float32, without flash attention", exact, "off", 1e-3},
		{"a generated model of float32", generated, "on", 1e-4},
	} {
		if c.flash == "on" && goruntime.GOOS == "linux" { // it is ours, in the order of positions
			c.limit = 0
		}
		t.Run(c.name, func(t *testing.T) {
			p := openPool(t, c.path(t), c.flash)
			prompt := p.tokens(truthPrompt)
			n := len(prompt) - 1 // the last one is computed by every run, as after a restore
			p.feed(0, prompt[:n]...)
			all, half, rest := p.save(0, 0, n), p.save(0, 0, n/2), p.save(0, n/2, n)
			var parts [][]byte
			for p0 := 0; p0 < n; p0 += 16 {
				parts = append(parts, p.save(0, p0, min(p0+16, n)))
			}
			want := p.greedy(0, prompt[n])

			p.clear()
			p.restore(1, rest, half)
			p.same("the second half first", p.greedy(1, prompt[n]), want, c.limit)

			p.clear()
			slices.Reverse(parts)
			p.restore(1, parts...)
			p.same("sixteen by sixteen, from the end", p.greedy(1, prompt[n]), want, c.limit)

			p.clear()
			p.holes(prompt)
			p.restore(1, all)
			sorted := c.limit
			if c.flash == "on" {
				sorted = 0
			}
			p.same("into holes, in order", p.greedy(1, prompt[n]), want, sorted)

			p.clear()
			p.holes(prompt)
			p.restore(1, parts...)
			p.same("into holes, from the end", p.greedy(1, prompt[n]), want, c.limit)
		})
	}
}

// The cells of sliding windows are kept (runtime/llama/windows.go), so parts of a sequence come back as with full
// attention. A snapshot is no longer than the window.
func TestSlidingWindowCellsElsewhere(t *testing.T) {
	p := openPool(t, ggufgen.Cached(t, ggufgen.TinySWA()), "auto")
	part := p.Capabilities().SnapshotTokens
	if p.Capabilities().Seals || part != 32 {
		t.Fatalf("capabilities %+v", p.Capabilities())
	}
	prompt := p.tokens(truthPrompt)
	n := len(prompt) - 1
	p.feed(0, prompt[:n]...)
	if _, err := p.SnapshotSize(0, 0, runtime.Pos(part+1)); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("a snapshot longer than the window: %v", err)
	}
	var parts [][]byte
	for from := 0; from < n; from += part {
		parts = append(parts, p.save(0, from, min(from+part, n)))
	}
	p.SeqCopy(0, 2, 0, runtime.Pos(n/2)) // what a prompt shares that parts in the middle
	want := p.greedy(0, prompt[n])
	p.SeqRemove(0, 0, -1)
	p.feed(2, prompt[n/2:n]...)
	p.same("continued in the middle", p.greedy(2, prompt[n]), want, 0)
	p.clear()
	p.holes(prompt)
	p.restore(1, parts...)
	p.same("into holes", p.greedy(1, prompt[n]), want, 0)
}
