//go:build linux && (amd64 || arm64) && cgo && llama_engine && !llama_no_probe

package llama

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama/known"
)

// openProbing opens a model whose graphs probe rows, on the processor unless UMA_TEST_GPU_LAYERS is set.
func openProbing(t testing.TB, o runtime.Options) *engine {
	t.Helper()
	o.ProbeRows, o.GPULayers = "always", testLayers(t)
	e := mustOpen(t, o).(*engine)
	if !e.caps.ProbesRows {
		t.Fatal("its graphs do not probe")
	}
	return e
}

// nearly compares the statistics of a graph with the reference's; worst is the largest difference of the entropies.
func nearly(t *testing.T, what string, got, want runtime.RowStats, row []float32) (worst float64) {
	t.Helper()
	worst = math.Abs(got.Entropy - want.Entropy)
	if a := got.Argmax; a < 0 || int(a) >= len(row) || row[a] != want.Max || got.Max != want.Max || // of equals any
		!(worst <= runtime.EntropyError) || !(math.Abs(got.LogSumExp-want.LogSumExp) <= runtime.LogSumExpError) ||
		got.CloseMass != 0 || got.CloseRank != -1 {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
	return worst
}

// TestGraphProbe compares the nodes with the float64 reference on the rows that the kernel of the host is tested with.
// A row with what is no number is refused, or that is left out as in the reference.
func TestGraphProbe(t *testing.T) {
	e := openProbing(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256})
	r := rand.New(rand.NewPCG(5, 1))
	worst := map[string]float64{}
	for _, n := range []int{1, 2, 255, 256, 257, 4097, 50_257, 152_064} {
		row := make([]float32, n)
		for _, c := range probeRows {
			c.fill(r, row)
			want := meridian.ReferenceProbe(row, nil)
			got, ok := e.probeOnDevice(row)
			switch {
			case want.Argmax == runtime.NoToken && ok:
				t.Errorf("%s, n = %d: nothing is above -Inf, and the graph says %+v", c.name, n, got)
			case !ok && want.NonFinite == 0 && want.Argmax != runtime.NoToken:
				t.Errorf("%s, n = %d: it is refused", c.name, n)
			case ok:
				worst[c.name] = max(worst[c.name], nearly(t, fmt.Sprintf("%s, n = %d", c.name, n), got, want, row))
			}
		}
	}
	t.Logf("largest errors of the entropy, in nats: %v", worst)
}

// TestGraphProbeContract: the engines' contract with rows that are probed in the graph.
func TestGraphProbeContract(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA()} {
		t.Run(cfg.Name, func(t *testing.T) {
			if testLayers(t) != 0 {
				cfg.Type = ggufgen.F32 // see TestSplit
			}
			path := model(t, cfg)
			enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
				o.ModelPath, o.Threads, o.GPULayers, o.ProbeRows = path, testThreads, testLayers(t), "always"
				e, err := Open(o)
				if err != nil {
					t.Fatal(err)
				}
				return e
			})
		})
	}
}

// wantRows decodes the batch, compares its probed rows with the logits that another engine computes for it, and its
// logits with that engine's, which are to be equal.
func wantRows(t *testing.T, what string, e, host *engine) {
	t.Helper()
	b := &e.batch
	host.batch.Reset()
	for i := range b.Token {
		host.batch.UseMix(b.Mix[i])
		bits := b.Logits[i]
		if bits&runtime.RowProbe != 0 {
			bits = bits&^runtime.RowProbe | runtime.RowLogits
		}
		host.batch.AddFor(b.Token[i], b.Pos[i], b.Seq[i], bits)
	}
	for _, x := range []*engine{e, host} {
		if err := x.Decode(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i, bits := range b.Logits {
		logits := host.Logits(i)
		switch {
		case bits&runtime.RowProbe != 0:
			var got runtime.RowStats
			if !e.ProbeRow(i, nil, &got) {
				t.Errorf("%s: row %d is not probed", what, i)
				continue
			}
			nearly(t, fmt.Sprintf("%s: row %d", what, i), got, meridian.ReferenceProbe(logits, nil), logits)
			if bits&runtime.RowLogits == 0 && e.Logits(i) != nil {
				t.Errorf("%s: row %d has logits", what, i)
			}
		case !slices.Equal(e.Logits(i), logits):
			t.Errorf("%s: row %d: the logits differ from those of an engine that probes nothing", what, i)
		}
	}
}

// TestGraphProbeRows: rows for the probe beside others, in batches of one and of several pieces, more than a graph
// probes, of several sequences and mixes of adapters, behind each other so that graphs are used again. The logits of
// the others are bit-equal to those without, and of the probed rows no byte is copied.
func TestGraphProbeRows(t *testing.T) {
	cfg := ggufgen.Tiny()
	if testLayers(t) != 0 {
		cfg.Type = ggufgen.F32
	}
	o := runtime.Options{ModelPath: model(t, cfg), ContextTokens: 1024, Batch: 128, MicroBatch: 32, Sequences: 16}
	e := openProbing(t, o)
	o.ProbeRows, o.GPULayers = "never", testLayers(t)
	host := mustOpen(t, o).(*engine)
	if host.caps.ProbesRows || host.ProbedRows() != (runtime.ProbedRows{}) {
		t.Fatal("it probes although it is told not to")
	}
	const probe, logits = runtime.RowProbe, runtime.RowLogits
	var pos [16]runtime.Pos
	add := func(s runtime.Seq, bits ...int8) {
		for _, b := range bits {
			e.batch.AddFor(runtime.Token(100+7*int(s)+int(pos[s])%50), pos[s], s, b)
			pos[s]++
		}
	}
	step := func(what string, rows, probed uint64, fill func()) {
		t.Helper()
		before := e.ProbedRows()
		e.batch.Reset()
		fill()
		wantRows(t, what, e, host)
		now := e.ProbedRows()
		if now.Logits-before.Logits != rows*uint64(4*e.nVoc) || now.Rows-before.Rows != probed {
			t.Errorf("%s: %d bytes of logits were copied and %d rows probed in the graph, want %d rows and %d", what,
				now.Logits-before.Logits, now.Rows-before.Rows, rows, probed)
		}
	}
	for range 3 {
		step("a probe alone", 0, 1, func() { add(0, 0, 0, probe) })
		step("no probe", 1, 0, func() { add(0, logits) })
		step("without outputs", 0, 0, func() { add(0, 0, 0, 0) })
		step("beside answers", 3, 2, func() {
			add(1, logits)
			add(2, 0, probe)
			add(3, logits)
			add(4, 0, probe)
			add(5, logits)
		})
		step("other rows of the same graph", 3, 2, func() {
			add(1, logits)
			add(2, 0, logits)
			add(3, probe)
			add(4, 0, probe)
			add(5, logits)
		})
		step("both", 2, 0, func() { add(1, logits|probe); add(2, logits) })
		step("more than a graph probes", 3, 4, func() {
			for s := range runtime.Seq(7) {
				add(s, 0, probe)
			}
		})
		step("several pieces", 5, 3, func() {
			for s := range runtime.Seq(8) {
				what := logits
				if s%3 == 0 {
					what = probe
				}
				add(s, append(make([]int8, 12), what)...)
			}
		})
	}
	if e.Beside() {
		e.batch.Reset()
		add(1, logits)
		add(2, probe)
		if err := e.Submit(); err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(); err != nil {
			t.Fatal(err)
		}
		var st runtime.RowStats
		if !e.ProbeRow(1, nil, &st) || !(st.Entropy > 0) || e.Logits(0) == nil {
			t.Errorf("submitted: %+v", st)
		}
	}
	lora := filepath.Join(t.TempDir(), "adapter.gguf")
	if err := ggufgen.WriteAdapter(lora, cfg, ggufgen.Adapter{Rank: 4, Alpha: 8}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*engine{e, host} {
		f, err := os.Open(lora)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		id, _, err := x.LoadAdapter(f)
		if err != nil {
			t.Fatal(err)
		}
		x.SetMix(1, []runtime.Scaled{{Adapter: id, Scale: 1}})
	}
	for range 2 {
		step("two mixes", 2, 2, func() {
			add(8, 0, probe)
			add(9, logits)
			e.batch.UseMix(1)
			add(10, probe)
			add(11, 0, logits)
		})
	}
}

// TestGraphProbeIsOff: rows are probed on the host where the output layer is on the processor, and of a model whose
// rows are changed after they are computed.
func TestGraphProbeIsOff(t *testing.T) {
	hides := known.HiddenTokens["llama"]
	known.HiddenTokens["llama"] = [2]int{5, 9}
	changed := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256,
		ProbeRows: "always"})
	known.HiddenTokens["llama"] = hides
	for name, e := range map[string]runtime.Engine{
		"on the processor": mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256}),
		"hidden tokens":    changed,
	} {
		if e.Capabilities().ProbesRows {
			t.Errorf("%s: the graph probes", name)
		}
		b := e.Batch()
		b.Reset()
		b.AddFor(100, 0, 0, runtime.RowProbe)
		var st runtime.RowStats
		if err := e.Decode(); err != nil || !e.(*engine).ProbeRow(0, nil, &st) || !(st.Entropy > 0) ||
			st.NonFinite != 0 || e.Logits(0) != nil {
			t.Errorf("%s: %v, %+v", name, err, st)
		}
	}
}
