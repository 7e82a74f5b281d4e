//go:build cgo && (llama_engine || llama_system)

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// books are a prefix tree and the engine whose cells it keeps the books of.
type books struct {
	*testing.T
	*rand.Rand
	eng  runtime.Engine
	tree *kvsnap.Tree
	do   func([]kvsnap.Action)
	now  kvsnap.Instant

	runs   []*run
	lastID uint64
	saved  []saved
	counts map[string]int
}

type run struct {
	seq      runtime.Seq
	tokens   []runtime.Token // its prompt, and then what it might say
	computed int
	cut      bool // its cells were computed after other tokens than its own, so no other request may share them
}

type saved struct {
	tokens []runtime.Token
	bytes  []byte
	pos    int    // of one of its cells,
	cell   []byte // as it was; nil where only whole sequences are handed out
}

// history is n tokens, of one of a few texts that part in a few places.
func (b *books) history(n int) []runtime.Token {
	out := make([]runtime.Token, n)
	branch := b.IntN(3)
	for i := range out {
		if i%37 == 0 && i > 0 && b.IntN(3) == 0 {
			branch = branch*3 + b.IntN(3)
		}
		out[i] = runtime.Token(20 + (i*7+branch*31)%200)
	}
	return out
}

// room evicts until n cells are free and reports whether they are.
func (b *books) room(n int) bool {
	if free := b.tree.Cells().Free; free < n {
		_, _, actions := b.tree.EvictCells(n - free)
		b.do(actions)
	}
	return b.tree.Cells().Free >= n
}

func (b *books) start(tokens []runtime.Token, ns uint64) *run {
	b.lastID++
	got, err := b.tree.Acquire(b.now, &kvsnap.Prompt{Req: b.lastID, NS: ns, Tokens: tokens, NoWait: true})
	if err != nil {
		return nil // all ids are with runs
	}
	b.do(got.Actions)
	r := &run{seq: got.Seq, tokens: tokens, computed: got.Cached}
	b.runs = append(b.runs, r)
	return r
}

// compute decodes n more tokens of r, which must fit.
func (b *books) compute(r *run, n int) error {
	batch := b.eng.Batch()
	batch.Reset()
	for i := range n {
		batch.Add(r.tokens[r.computed+i], runtime.Pos(r.computed+i), r.seq, i == n-1)
	}
	if err := b.eng.Decode(); err != nil {
		return err
	}
	r.computed += n
	b.tree.Progress(r.seq, r.tokens, r.computed, blocks.Prefix)
	return nil
}

func (b *books) end(r *run) {
	for i, o := range b.runs {
		if o == r {
			b.runs = append(b.runs[:i], b.runs[i+1:]...)
		}
	}
}

// entry is one of the cached prefixes.
func (b *books) entry() (kvsnap.Entry, bool) {
	var all []kvsnap.Entry
	for _, e := range b.tree.Entries(nil) {
		if !e.Running {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return kvsnap.Entry{}, false
	}
	return all[b.IntN(len(all))], true
}

// operation does one thing at random and returns what.
func (b *books) operation() string {
	var r *run
	if len(b.runs) > 0 {
		r = b.runs[b.IntN(len(b.runs))]
	}
	e, ok := b.entry()
	scratch := b.tree.ScratchSeq(0)
	switch k := b.IntN(20); {
	case k < 4 || r == nil:
		b.start(b.history(2+b.IntN(120)), uint64(b.IntN(2)))
		return "start"
	case k < 10:
		if n := min(1+b.IntN(30), len(r.tokens)-r.computed); n > 0 && b.room(n) {
			if err := b.compute(r, n); err != nil {
				b.Fatalf("%d cells are free, and %d tokens find no place: %v", b.tree.Cells().Free, n, err)
			}
			return "compute"
		}
		r.tokens = append(r.tokens[:r.computed:r.computed], b.history(1+b.IntN(30))...)
		return "go on"
	case k < 12 && !r.cut:
		b.do(b.tree.Retain(b.now, r.seq, r.tokens[:r.computed*(2+b.IntN(3))/4]).Actions)
		b.end(r)
		return "retain"
	case k <= 12:
		b.do(b.tree.Release(r.seq).Actions)
		b.end(r)
		return "release"
	case k == 13:
		_, _, actions := b.tree.EvictCells(b.IntN(60))
		b.do(actions)
		return "evict"
	case !ok:
	case k == 14:
		ended, err := b.tree.Drop(e.ID)
		if err != nil {
			b.Fatal(err)
		}
		b.do(ended.Actions)
		return "drop"
	case k == 15:
		if e.Pinned {
			b.tree.Unpin(e.ID)
		} else if b.tree.Cells().Pinned < 60 {
			b.tree.Pin(e.ID)
		}
		return "pin"
	case k == 16: // a copy, whole or of a beginning
		tokens, err := b.tree.Tokens(e.ID)
		if err != nil {
			b.Fatal(err)
		}
		n := e.Tokens
		if !b.eng.Capabilities().Seals {
			n = 1 + b.IntN(n)
		}
		if most := b.eng.Capabilities().SnapshotTokens; most > 0 {
			n = min(n, most)
		}
		s := saved{tokens: append([]runtime.Token(nil), tokens[:n]...), bytes: b.snapshot(e.Seq, 0, n), pos: b.IntN(n)}
		if n > 1 && !b.eng.Capabilities().Seals { // a whole sequence's snapshot names the sequence
			s.cell = b.snapshot(e.Seq, s.pos, s.pos+1)
		}
		b.saved = append(b.saved, s)
		return "save"
	case k == 17 && len(b.saved) > 0: // comes back, beside what is there
		s := b.saved[b.IntN(len(b.saved))]
		if n := len(s.tokens); b.room(n) {
			if r := b.start(append(s.tokens[:n:n], 19), 7); r != nil && r.computed == 0 && b.room(n) {
				if err := b.eng.Restore(s.bytes, r.seq, scratch); err != nil {
					b.Fatalf("%d cells are free, and %d do not come back: %v", b.tree.Cells().Free, n, err)
				}
				b.tree.Progress(r.seq, r.tokens, n, blocks.Prefix)
				r.computed = n
				if s.cell != nil && !bytes.Equal(b.snapshot(r.seq, s.pos, s.pos+1), s.cell) {
					b.Fatalf("the cell that came back for position %d of %d is not the one that was saved", s.pos, n)
				}
				return "restore"
			}
		}
	case k == 18 && b.eng.Capabilities().CanShift && r.computed > 0: // out of the middle
		from := b.IntN(r.computed)
		n := 1 + b.IntN(r.computed-from)
		tokens := append(append([]runtime.Token(nil), r.tokens[:from]...), r.tokens[from+n:]...)
		if ended, err := b.tree.Cut(r.seq, tokens, from, n); err == nil {
			b.do(ended.Actions)
			r.tokens, r.computed, r.cut = tokens, r.computed-n, true
			return "cut"
		}
	case k == 19: // exactly as many tokens find a place as the books say are free
		if r := b.start(b.history(1+b.tree.Cells().Free+2), 8); r != nil {
			n := b.tree.Cells().Free
			r.tokens = append(r.tokens[:r.computed:r.computed], b.history(n+1)...)
			for left := n; left > 0; {
				k := min(left, b.eng.Capabilities().MaxBatch)
				if err := b.compute(r, k); err != nil {
					b.Fatalf("%d cells are free, and %d tokens find no place: %v", n, k, err)
				}
				left -= k
			}
			if err := b.compute(r, 1); !errors.Is(err, runtime.ErrKVFull) {
				b.Fatalf("no cell is free, and a token found one: %v", err)
			}
			b.do(b.tree.Release(r.seq).Actions)
			b.end(r)
			return "fill"
		}
	}
	return "nothing"
}

func (b *books) snapshot(seq runtime.Seq, p0, p1 int) []byte {
	size, err := b.eng.SnapshotSize(seq, runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, size)
	k, err := b.eng.Snapshot(buf, seq, b.tree.ScratchSeq(0), runtime.Pos(p0), runtime.Pos(p1))
	if err != nil {
		b.Fatal(err)
	}
	return buf[:k]
}

// check holds the tree's books against themselves and against what the engine has.
func (b *books) check() {
	if err := b.tree.Check(); err != nil {
		b.Fatal(err)
	}
	c := b.tree.Cells()
	if sum := c.Own + c.Shared + c.Cached + c.Pinned + c.Free; sum != b.eng.Capabilities().ContextTokens {
		b.Fatalf("%+v are %d cells, the pool has %d", c, sum, b.eng.Capabilities().ContextTokens)
	}
	held := map[runtime.Seq]int{}
	for _, e := range b.tree.Entries(nil) {
		held[e.Seq] = e.Tokens
	}
	for s := range runtime.Seq(b.eng.Capabilities().MaxSequences) {
		first, last := b.eng.SeqRange(s)
		// A sliding window gives up what lies before it.
		if n := held[s]; n == 0 && last >= 0 || n > 0 &&
			(int(last) != n-1 || first != 0 && b.eng.Model().SlidingWindow == 0) {
			b.Fatalf("sequence %d holds [%d, %d] in the engine and %d tokens in the books", s, first, last, n)
		}
	}
}

// Ten thousand random operations on each kind of memory: after each, the ledger agrees with itself and with the engine,
// and its free cells equal those of the engine exactly.
func TestTenThousandOperations(t *testing.T) {
	options := runtime.Options{ContextTokens: 512, Batch: 128, MicroBatch: 128, Sequences: 16, Threads: 1}
	open := func(cfg ggufgen.Config) func(t *testing.T) runtime.Engine {
		return func(t *testing.T) runtime.Engine {
			options.ModelPath = ggufgen.Cached(t, cfg)
			e, err := llama.Open(options)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			return e
		}
	}
	for name, engine := range map[string]func(*testing.T) runtime.Engine{
		"llama.cpp":                 open(ggufgen.Tiny()),
		"llama.cpp, sliding window": open(ggufgen.TinySWA()),
		"fake": func(*testing.T) runtime.Engine {
			return fake.New(fake.Config{Options: options})
		},
		"fake, whole sequences": func(*testing.T) runtime.Engine {
			return fake.New(fake.Config{Options: options, NoRanges: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			e := engine(t)
			caps := e.Capabilities()
			tree, err := kvsnap.New(kvsnap.Config{
				Cells: caps.ContextTokens, CellBytes: e.Model().KVBytesPerToken, Sequences: caps.MaxSequences,
				Scratch: core.MaxForks + 1, Seals: caps.Seals,
			})
			if err != nil {
				t.Fatal(err)
			}
			b := &books{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), eng: e, tree: tree, do: carrier(e),
				counts: map[string]int{}}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d, after %v", seed, b.counts)
				}
			}()
			for n := 0; n < 10_000; b.now++ {
				if len(b.saved) > 8 {
					b.saved = b.saved[1:]
				}
				what := b.operation()
				if b.counts[what]++; what != "nothing" {
					n++
				}
				b.check()
			}
			t.Log(b.counts)
		})
	}
}

// carrier carries out in e what a prefix tree asks for.
func carrier(e runtime.Engine) func([]kvsnap.Action) {
	return func(actions []kvsnap.Action) {
		for i := range actions {
			a := &actions[i]
			ok := true
			switch a.Kind {
			case kvsnap.Copy:
				e.SeqCopy(a.Src, a.Dst, runtime.Pos(a.From), runtime.Pos(a.To))
			case kvsnap.Remove:
				ok = e.SeqRemove(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To))
			case kvsnap.Shift:
				ok = e.SeqAdd(a.Dst, runtime.Pos(a.From), runtime.Pos(a.To), runtime.Pos(a.Delta)) == nil
			}
			if !ok {
				panic(fmt.Sprintf("the engine refuses %+v", *a))
			}
		}
	}
}
