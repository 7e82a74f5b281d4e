//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// model writes a generated model into a temporary directory.
func model(t testing.TB, cfg ggufgen.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), cfg.Name+".gguf")
	if err := ggufgen.Write(path, cfg); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestContract(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA(), ggufgen.TinyDeepSeek4()} {
		t.Run(cfg.Name, func(t *testing.T) {
			switch {
			case testLayers(t) != 0 && cfg.Arch == ggufgen.DeepSeek4: // docs/engines.md
				t.Skip("llvmpipe fails to compile ggml's shader dsv4_hc_pre, and the decode waits for it for ever")
			case testLayers(t) > 0:
				cfg.Type = ggufgen.F32 // see TestSplit
			}
			path := model(t, cfg)
			contract(t, path)
		})
	}
}

// testThreads: compute threads spin while they wait for each other, so that beside other busy processes two threads on
// two cores are a hundred times slower than one.
const testThreads = 1

// testLayers are the layers that go to a device, where one is named: scripts/device-check.sh.
func testLayers(t testing.TB) int {
	text := os.Getenv("UMA_TEST_GPU_LAYERS")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustOpen(t testing.TB, o runtime.Options) runtime.Engine {
	t.Helper()
	if o.Threads == 0 {
		o.Threads = testThreads
	}
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// contract runs the engines' contract on a model. It closes what it opens.
func contract(t *testing.T, path string) {
	t.Helper()
	enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
		o.ModelPath, o.Threads, o.GPULayers = path, testThreads, testLayers(t)
		e, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}

// TestKVBytesPerToken compares what warmUp measures with the metadata's arithmetic.
func TestKVBytesPerToken(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA()} {
		path := model(t, cfg)
		info, err := gguf.Inspect(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"f16", "f32", "q8_0", "q4_0"} {
			for _, v := range []string{"f16", "q8_0"} {
				e := mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 256, KVTypeK: k, KVTypeV: v})
				want, err := info.KVBytesPerToken(k, v)
				if err != nil {
					t.Fatal(err)
				}
				if m := e.Model(); int64(m.KVBytesPerToken) != want || m.KVTypeK != k || m.KVTypeV != v {
					t.Errorf("%s: a token takes %d bytes as %s/%s, want %d as %s/%s", cfg.Name, m.KVBytesPerToken,
						m.KVTypeK, m.KVTypeV, want, k, v)
				}
			}
		}
	}
}

// TestKVBytesOfLargerContext: KVBytesPerToken is what each further token of the context takes of the memory, also
// where the model has states beside its cells, and where a cell has several positions.
func TestKVBytesOfLargerContext(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA(), ggufgen.TinyGrids(ggufgen.Qwen2VL),
		ggufgen.TinyGrids(ggufgen.Qwen35)} {
		path := model(t, cfg)
		for _, k := range []string{"f16", "q8_0"} {
			kv, per := [2]uint64{}, 0
			for i, n := range []int{256, 768} {
				e := mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: n, Sequences: 2, KVTypeK: k})
				for _, p := range e.Capabilities().Placed {
					kv[i] += p.KV
				}
				per = e.Model().KVBytesPerToken
			}
			if kv[0] == 0 {
				t.Skip("this build does not tell what a context takes")
			}
			if want := int(kv[1]-kv[0]) / 512; per != want || per == 0 {
				t.Errorf("%s: a token takes %d bytes with K as %s, want %d", cfg.Name, per, k, want)
			}
		}
	}
}

func TestModelInfo(t *testing.T) {
	cfg := ggufgen.Tiny()
	path := model(t, cfg)
	m := mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 300, Threads: 1, ThreadsBatch: 2, Sequences: 3})
	want := runtime.ModelInfo{
		Path: path, Name: cfg.Name, Architecture: "llama", Description: m.Model().Description,
		Parameters: cfg.Parameters(),
		Bytes:      m.Model().Bytes, TrainContext: cfg.Context, Layers: cfg.Layers, Embedding: cfg.Embedding,
		Heads:   cfg.Heads,
		KVHeads: cfg.KVHeads, VocabSize: cfg.VocabSize, KVTypeK: "f16", KVTypeV: "f16", KVBytesPerToken: 256,
	}
	if m.Model() != want {
		t.Errorf("model info\n%+v, want\n%+v", m.Model(), want)
	}
	c := m.Capabilities()
	if c.ContextTokens != 512 || c.Threads != 1 || c.Device != runtime.DeviceCPU || !c.CanAbort || c.Seals ||
		!c.CanShift {
		t.Errorf("capabilities %+v (a context is a multiple of 256)", c)
	}
	if m.Vocab().ChatTemplate() != cfg.Template {
		t.Errorf("chat template %q", m.Vocab().ChatTemplate())
	}
	swa := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.TinySWA()), ContextTokens: 256, Sequences: 2})
	if c := swa.Capabilities(); swa.Model().SlidingWindow != 32 || c.Seals || c.SnapshotTokens != 32 ||
		c.MaxSequences != 2 || c.MaxBatch != c.MaxMicroBatch {
		t.Errorf("a sliding-window model: window %d, %+v", swa.Model().SlidingWindow, c)
	}
	// Its batch has one pass. A scheduler needs two rows, so one is never all that it has.
	narrow := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.TinySWA()), ContextTokens: 256, Sequences: 2,
		MicroBatch: 1})
	if c := narrow.Capabilities(); c.MaxBatch != 2 || c.MaxMicroBatch != 2 {
		t.Errorf("a sliding-window model with passes of one row: %+v", c)
	}
	alone := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.TinySWA()), ContextTokens: 256, Sequences: 1})
	if c := alone.Capabilities(); !c.Seals || c.SnapshotTokens != 0 {
		t.Errorf("a sliding-window model with one sequence: %+v", c)
	}
}

// TestEngineBuild: the build string is part of a snapshot's fingerprint and must move with engine.lock. A build on
// another llama.cpp has its sum or commit there, and one on the installed library says so.
func TestEngineBuild(t *testing.T) {
	lock, err := os.ReadFile(filepath.Join("..", "..", "engine.lock"))
	if err != nil {
		t.Fatal(err)
	}
	locked := map[string]string{}
	for line := range strings.Lines(string(lock)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			locked[key] = value
		}
	}
	version, commit := locked["llama_cpp"], locked["commit"]
	if version == "" || len(commit) < 9 { // make engine-bump may find no more than its first nine digits
		t.Fatalf("engine.lock has version %q and commit %q", version, commit)
	}
	switch build := engineBuild(); {
	case build == "llama.cpp "+version+" "+commit[:9]:
	case strings.HasPrefix(build, "llama.cpp (system, "):
	case strings.Contains(os.Getenv("CGO_CPPFLAGS"), "/uma-serve/engine/"+locked["sha256"]):
		t.Errorf("the engine calls itself %q, engine.lock names %s, %s", build, version, commit)
	case !regexp.MustCompile(`^llama\.cpp ([0-9.]+ )?[0-9a-f]{8,16}(, changed: [0-9a-f]+)?$`).MatchString(build):
		t.Errorf("the engine calls itself %q", build)
	}
}

func TestProgress(t *testing.T) {
	path := model(t, ggufgen.Tiny())
	var seen []float32
	mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 256,
		Progress: func(f float32) bool { seen = append(seen, f); return true }})
	if len(seen) < 2 || !slices.IsSorted(seen) || seen[len(seen)-1] != 1 {
		t.Errorf("progress was %v, want it to rise to 1", seen)
	}
	if _, err := Open(runtime.Options{ModelPath: path, Progress: func(float32) bool { return false }}); !errors.Is(err,
		ErrStopped) {
		t.Errorf("a stopped load returned %v", err)
	}
}

// records is a slog.Handler that keeps lines.
type records struct {
	mu    sync.Mutex
	lines []string
}

func (*records) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelDebug }
func (r *records) WithAttrs([]slog.Attr) slog.Handler         { return r }
func (r *records) WithGroup(string) slog.Handler              { return r }
func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, rec.Level.String()+" "+rec.Message)
	return nil
}

func TestLog(t *testing.T) {
	var got records
	SetLogger(slog.New(&got))
	defer SetLogger(nil)
	e := mustOpen(t, runtime.Options{ModelPath: model(t, ggufgen.Tiny()), ContextTokens: 256})
	all := strings.Join(got.lines, "\n")
	// Versions of llama.cpp align their columns differently, and newer ones warn less.
	for _, want := range []string{"DEBUG llama_model_loader: loaded meta data", "DEBUG llama_context: n_ctx += 256",
		`(INFO|DEBUG) llama_context: n_ctx_seq \(256\) < n_ctx_train`} {
		if !regexp.MustCompile(want).MatchString(all) {
			t.Errorf("no line %q among the %d of a load", want, len(got.lines))
		}
	}
	for _, l := range got.lines {
		if strings.HasSuffix(l, " ") || strings.Contains(l, "\n") {
			t.Errorf("line %q is not one line", l)
		}
	}
	got.lines = nil
	e.Batch().Reset()
	for i := range 256 {
		e.Batch().Add(5, int32(i), 0, false)
	}
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	e.Batch().Reset()
	e.Batch().Add(5, 256, 0, false)
	if err := e.Decode(); !errors.Is(err, runtime.ErrKVFull) {
		t.Fatal(err)
	}
	for _, l := range got.lines {
		if !strings.HasPrefix(l, "DEBUG ") {
			t.Errorf("a full pool, which callers live with, logs %q", l)
		}
	}
}

// TestGreedyRepeats: the reference loop gives the same tokens twice, and on a second engine with the same file.
func TestGreedyRepeats(t *testing.T) {
	path := model(t, ggufgen.Tiny())
	var want []runtime.Token
	for range 2 {
		e := mustOpen(t, runtime.Options{ModelPath: path, ContextTokens: 512})
		prompt, err := e.Vocab().Tokenize(nil, "<|im_start|>user\nSay something.<|im_end|>\n<|im_start|>assistant\n",
			true, true)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := enginetest.Greedy(e, prompt, 100)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Fatalf("greedy output\n%v and\n%v", got, want)
			}
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(want)))) < 5 {
		t.Errorf("the output says next to nothing: %v", want)
	}
}

// argmaxGo is the reference for ArgMax.
func argmaxGo(x []float32) (int32, float32) {
	at, best := int32(-1), float32(math.Inf(-1))
	for i, v := range x {
		if v > best {
			at, best = int32(i), v
		}
	}
	return at, best
}

func TestArgMax(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	special := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0,
		float32(math.Copysign(0, -1)), math.MaxFloat32}
	for n := range 300 {
		x := make([]float32, n)
		for round := range 20 {
			for i := range x {
				x[i] = float32(r.IntN(9)) - 4 // many ties
				if round%4 == 1 && r.IntN(8) == 0 {
					x[i] = special[r.IntN(len(special))]
				}
				if round%4 == 2 {
					x[i] = float32(math.NaN())
				}
				if round%4 == 3 {
					x[i] = float32(math.Inf(-1))
				}
			}
			tok, v := ArgMax(x)
			if wt, wv := argmaxGo(x); tok != wt || v != wv {
				t.Fatalf("argmax of %v is %d (%v), want %d (%v)", x, tok, v, wt, wv)
			}
		}
	}
}

func BenchmarkArgMax(b *testing.B) {
	for _, n := range []int{49_152, 152_064} {
		x := make([]float32, n)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		b.Run(fmt.Sprintf("c/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ArgMax(x)
			}
		})
		b.Run(fmt.Sprintf("go/%d", n), func(b *testing.B) {
			for b.Loop() {
				argmaxGo(x)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	got := errorText([]string{
		"llama_model_load: error loading model: tensor 'x' is missing",
		"llama_model_load_from_file_impl: failed to load model",
		"decode: tensor 'x' is missing", "plain words: kept",
	})
	if want := "tensor 'x' is missing; plain words: kept"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestShiftOfOneKindOfLayers: where all layers have windows, llama.cpp says that positions can move, and fails an
// assertion in the Decode after they have.
func TestShiftOfOneKindOfLayers(t *testing.T) {
	// Every so many layers one has no window. Some versions of llama.cpp read no array of all layers here.
	const key = "gemma2.attention.sliding_window_pattern"
	for name, c := range map[string]struct {
		period uint32
		shifts bool
	}{
		"both":          {2, true},
		"windows alone": {100, false},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.shifts && !builtPositions {
				t.Skip("positions are left out: what llama.cpp says is all that is known")
			}
			e := mustOpen(t, runtime.Options{ModelPath: changed(t, ggufgen.TinySWA(), key, c.period),
				ContextTokens: 256, Sequences: 2})
			decode := func(from, n runtime.Pos) {
				t.Helper()
				b := e.Batch()
				b.Reset()
				for p := from; p < from+n; p++ {
					b.Add(runtime.Token(p), p, 0, p == from+n-1)
				}
				if err := e.Decode(); err != nil {
					t.Fatal(err)
				}
			}
			decode(0, 20)
			if got := e.Capabilities().CanShift; got != c.shifts {
				t.Fatalf("CanShift is %v, want %v", got, c.shifts)
			}
			e.SeqRemove(0, 4, 8)
			err := e.SeqAdd(0, 8, -1, -4)
			if c.shifts != (err == nil) || !c.shifts && !errors.Is(err, runtime.ErrUnsupported) {
				t.Fatal(err)
			}
			if c.shifts {
				decode(16, 1)
			}
		})
	}
}
