//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestAdapters: rows of several mixes in a batch are those of the mix alone, on full attention and with windows.
func TestAdapters(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA()} {
		t.Run(cfg.Name, func(t *testing.T) {
			var paths [2]string
			for i := range paths {
				paths[i] = filepath.Join(t.TempDir(), "adapter.gguf")
				a := ggufgen.Adapter{Rank: 4 + 4*i, Alpha: float32(8 * i), Seed: uint64(i)}
				if err := ggufgen.WriteAdapter(paths[i], cfg, a); err != nil {
					t.Fatal(err)
				}
			}
			enginetest.Adapters(t, func(t *testing.T, o runtime.Options) runtime.Engine {
				o.ModelPath, o.Threads, o.GPULayers = model(t, cfg), testThreads, testLayers(t)
				e, err := Open(o)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}, paths[0], paths[1])
		})
	}
}

// TestBrokenAdapters: an adapter that llama.cpp would take, and with which it could not compute, is refused.
func TestBrokenAdapters(t *testing.T) {
	cfg := ggufgen.Tiny()
	path := filepath.Join(t.TempDir(), "adapter.gguf")
	if err := ggufgen.WriteAdapter(path, cfg, ggufgen.Adapter{Rank: 4, Alpha: 8}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := ggufgen.TinySWA()
	other.Embedding *= 2
	foreign := filepath.Join(t.TempDir(), "foreign.gguf")
	if err := ggufgen.WriteAdapter(foreign, other, ggufgen.Adapter{Rank: 4}); err != nil {
		t.Fatal(err)
	}
	stranger, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	// Integers in place of the first tensor's numbers: behind its name are the number of dimensions, two of them, and
	// its type.
	integers := slices.Clone(whole)
	name := bytes.Index(integers, []byte(".lora_a"))
	binary.LittleEndian.PutUint32(integers[name+len(".lora_a")+4+2*8:], 26)
	e := mustOpen(t, runtime.Options{ModelPath: model(t, cfg), ContextTokens: 256}).(*engine)
	for name, text := range map[string][]byte{"empty": nil, "its beginning": whole[:len(whole)/2],
		"a header": whole[:64], "integers": integers, "another model's": stranger} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = e.LoadAdapter(f); !errors.Is(err, runtime.ErrAdapter) {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
	e.batch.Reset()
	e.batch.Add(100, 0, 0, true)
	if err := e.Decode(); err != nil {
		t.Error(err)
	}
}

// BenchmarkMixes prints what a step of three rows takes whose mixes differ, relative to a step for each mix: 1 would be
// free changes between mixes.
func BenchmarkMixes(b *testing.B) {
	cfg := ggufgen.Bench135M()
	path := filepath.Join(b.TempDir(), "adapter.gguf")
	if err := ggufgen.WriteAdapter(path, cfg, ggufgen.Adapter{Rank: 16}); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	e := mustOpen(b, runtime.Options{ModelPath: model(b, cfg), ContextTokens: 4096, Sequences: 3}).(*engine)
	id, _, err := e.LoadAdapter(f)
	if err != nil {
		b.Fatal(err)
	}
	e.SetMix(1, []runtime.Scaled{{Adapter: id, Scale: 1}})
	e.SetMix(2, []runtime.Scaled{{Adapter: id, Scale: 0.5}})
	pos := runtime.Pos(0)
	step := func(mixes ...uint8) time.Duration {
		e.batch.Reset()
		for s, m := range mixes {
			e.batch.UseMix(m)
			e.batch.Add(100, pos, runtime.Seq(s), true)
		}
		pos++
		if err := e.Decode(); err != nil {
			b.Fatal(err)
		}
		return e.took
	}
	var apart, together time.Duration
	for b.Loop() {
		for s := range runtime.Seq(3) {
			e.SeqRemove(s, 0, -1)
		}
		pos = 0
		for m := range uint8(3) {
			step(m)
			for range 10 {
				apart += step(m)
			}
		}
		for s := range runtime.Seq(3) {
			e.SeqRemove(s, 0, -1)
		}
		pos = 0
		step(0, 1, 2)
		for range 10 {
			together += step(0, 1, 2)
		}
	}
	b.ReportMetric(float64(together)/float64(apart), "ratio")
	b.ReportMetric(float64(together.Milliseconds())/float64(10*b.N), "ms/step")
}
