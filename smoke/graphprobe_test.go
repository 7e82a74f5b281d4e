//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// TestGraphProbeOfPublishedModel: the statistics that the graph of SmolLM2-135M computes of its rows are those of a
// float64 reference of the same rows' logits, and no logits of theirs are copied. UMA_TEST_PROBE_MODELS names another
// model of models.lock, UMA_TEST_GPU_LAYERS a device; else the processor computes the nodes. UMA_TEST_PROBE_STEPS is
// the number of steps of four rows, where a device takes seconds for one.
func TestGraphProbeOfPublishedModel(t *testing.T) {
	names, layers := []string{"smollm2-135m"}, 0
	if s := os.Getenv("UMA_TEST_PROBE_MODELS"); s != "" {
		names = append(names[:0], s)
	}
	if s := os.Getenv("UMA_TEST_GPU_LAYERS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		layers = n
	}
	steps := math.MaxInt
	if s := os.Getenv("UMA_TEST_PROBE_STEPS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("UMA_TEST_PROBE_STEPS=%s", s)
		}
		steps = n
	}
	const text = "The capital of France is Paris. The entropy of what comes next is small after a question whose " +
		"answer is known, and large where a sentence begins. First, second, third, fourth,"
	for _, name := range names {
		path := published(t, name)
		open := func(where string) runtime.Engine {
			e, err := llama.Open(runtime.Options{ModelPath: path, ContextTokens: 512, Sequences: 8, Threads: 1,
				GPULayers: layers, ProbeRows: where})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		// decode computes the text four rows at a time, a whole one beside three forks of one more token.
		decode := func(e runtime.Engine, bits int8, see func(row int)) {
			defer e.Close()
			tokens, err := e.Vocab().Tokenize(nil, text, true, false)
			if err != nil {
				t.Fatal(err)
			}
			for i := range min(len(tokens)-1, steps) {
				b := e.Batch()
				b.Reset()
				b.Add(tokens[i], runtime.Pos(i), 0, true)
				for s := range runtime.Seq(3) {
					if i > 0 {
						e.SeqCopy(0, s+1, 0, runtime.Pos(i))
					}
					b.AddFor(tokens[(i+1+int(s))%len(tokens)], runtime.Pos(i), s+1, bits)
				}
				if err := e.Decode(); err != nil {
					t.Fatal(err)
				}
				for row := range 4 {
					see(row)
				}
				for s := range runtime.Seq(3) {
					e.SeqRemove(s+1, 0, -1)
				}
			}
		}
		var want []runtime.RowStats
		var said [2][]float32
		host := open("never")
		decode(host, runtime.RowLogits, func(row int) {
			want = append(want, meridian.ReferenceProbe(host.Logits(row), nil))
			if row == 0 {
				said[0] = append(said[0], host.Logits(0)...)
			}
		})
		e := open("always")
		if !e.Capabilities().ProbesRows {
			e.Close()
			t.Skip("this build probes no rows in the graph")
		}
		worst, next := 0.0, 0
		decode(e, runtime.RowProbe, func(row int) {
			w := want[next]
			next++
			if row == 0 {
				said[1] = append(said[1], e.Logits(0)...)
				return
			}
			var got runtime.RowStats
			ok := e.(runtime.RowProber).ProbeRow(row, nil, &got)
			worst = max(worst, math.Abs(got.Entropy-w.Entropy))
			if !ok || got.Max != w.Max || !(math.Abs(got.Entropy-w.Entropy) <= runtime.EntropyError) ||
				!(math.Abs(got.LogSumExp-w.LogSumExp) <= runtime.LogSumExpError) || e.Logits(row) != nil {
				t.Errorf("%s, row %d: got %+v, want %+v", name, next-1, got, w)
			}
			if row == 3 {
				c := e.(runtime.RowCounter).ProbedRows()
				steps := uint64(next / 4)
				if c.Rows != 3*steps || c.Logits < 4*steps*uint64(e.Vocab().Size()) ||
					c.Logits > 4*(steps+2)*uint64(e.Vocab().Size()) { // two more when it was opened
					t.Errorf("%s, step %d: %+v", name, steps, c)
				}
			}
		})
		if !slices.Equal(said[0], said[1]) {
			t.Errorf("%s: the logits of the rows beside the probed ones differ", name)
		}
		t.Logf("%s: %d rows probed, largest error of the entropy %.2g nats", name, len(want)/4*3, worst)
	}
}
