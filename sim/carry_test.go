package sim_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// carryOut runs random workloads twice: with the latency model alone, and with every batch, copy, removal and restore
// carried out on an engine. Both give the same bytes. Each request's last row of logits is, bit for bit, the one that
// the engine computes for its history alone, so every cell of its sequence was right.
func carryOut(t *testing.T, runs int, open func(cells, batch int) runtime.Engine) {
	t.Helper()
	const batch = 64
	gen := rapid.Custom(func(t *rapid.T) (r struct {
		cfg  sim.Config
		rows []workload.Request
	}) {
		r.cfg, r.rows = randomRun(t)
		return r
	})
	engines := map[int][2]runtime.Engine{} // by cells: the simulator's, and the one for requests alone
	for seed := range runs {
		r := gen.Example(seed)
		r.cfg.KVBlocks, r.cfg.MaxScheduledTokens = 16*(1+seed%3), batch
		cells := r.cfg.KVBlocks * r.cfg.BlockTokens
		if engines[cells][0] == nil {
			engines[cells] = [2]runtime.Engine{open(cells, batch), open(cells, batch)}
		}
		model, err := r.cfg.Latency()
		if err != nil {
			t.Fatal(err)
		}
		run := func(opt sim.Options) []byte {
			rep, err := sim.RunModel(r.cfg, model, workload.NewList(r.rows), opt)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := rep.WriteJSON(&b); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		type row struct {
			history []runtime.Token
			logits  []float32
		}
		last := map[int64]row{}
		eng, alone := engines[cells][0], engines[cells][1]
		empty(eng)
		asked := run(sim.Options{})
		done := run(sim.Options{Engine: eng, Row: func(r *workload.Request, history []runtime.Token, logits []float32) {
			x := last[r.Index]
			last[r.Index] = row{append(x.history[:0], history...), append(x.logits[:0], logits...)}
		}})
		if !bytes.Equal(asked, done) {
			t.Fatalf("run %d: asked:\n%s\ncarried out:\n%s", seed, asked, done)
		}
		if len(last) == 0 {
			t.Fatalf("run %d: no row was computed: the test shows nothing", seed)
		}
		for id, x := range last {
			if want := compute(t, alone, x.history); !slices.Equal(x.logits, want) {
				t.Fatalf("run %d: the last logits of request %d, behind %d tokens, are not those of its history alone",
					seed, id, len(x.history))
			}
		}
	}
}

func empty(e runtime.Engine) {
	for s := range e.Capabilities().MaxSequences {
		e.SeqRemove(runtime.Seq(s), 0, -1)
	}
}

// compute is the logits behind tokens on an engine with nothing else in it.
func compute(t *testing.T, e runtime.Engine, tokens []runtime.Token) []float32 {
	t.Helper()
	e.SeqRemove(0, 0, -1)
	b := e.Batch()
	for pos := 0; ; {
		b.Reset()
		for ; pos < len(tokens) && b.Len() < cap(b.Token); pos++ {
			b.Add(tokens[pos], runtime.Pos(pos), 0, pos == len(tokens)-1)
		}
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		if pos == len(tokens) {
			return e.Logits(b.Len() - 1)
		}
	}
}

func TestCarryOutFake(t *testing.T) {
	carryOut(t, 40, func(cells, batch int) runtime.Engine {
		f := fake.Config{Seed: 3}
		f.ContextTokens, f.Batch, f.Sequences = cells, batch, 256
		return fake.New(f)
	})
}
