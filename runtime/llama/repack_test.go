//go:build cgo && llama_engine

package llama

import (
	"fmt"
	"math"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// rows decodes n tokens in one step and returns the logits of each.
func rows(t testing.TB, e runtime.Engine, n int) [][]float32 {
	t.Helper()
	e.SeqRemove(0, 0, -1)
	b := e.Batch()
	b.Reset()
	for i := range n {
		b.Add(runtime.Token(100+7*i%300), runtime.Pos(i), 0, true)
	}
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	var out [][]float32
	for i := range n {
		out = append(out, slices.Clone(e.Logits(i)))
	}
	return out
}

// distance is the root of Σ (a-b)² / Σ a² over all rows.
func distance(a, b [][]float32) float64 {
	var square, size float64
	for i := range a {
		for j := range a[i] {
			square += math.Pow(float64(a[i][j])-float64(b[i][j]), 2)
			size += math.Pow(float64(a[i][j]), 2)
		}
	}
	return math.Sqrt(square / size)
}

// The engine repacks the weights that model/gguf predicts from the file, the processor and the kernels, and with
// NoRepack none: beside ggml's kernels Q4_K, Q4_0 and IQ4_NL have a copy (this fails in a build without
// GGML_USE_CPU_REPACK), with AMX most types; ours take every type from the file.
func TestRepackedBytesAsForetold(t *testing.T) {
	if goruntime.GOOS == "darwin" {
		t.Skip("the layers lie on the GPU")
	}
	defer UseKernels("auto")
	for _, kernels := range []string{"ggml", "auto"} {
		p := gguf.ThisProcessor()
		if p.Kernels && kernels == "auto" {
			if err := UseKernels("auto"); err != nil || Kernels() == "ggml" {
				t.Fatalf("no kernels for a processor that has them by %+v: %v", p, err)
			}
		}
		p.Kernels = p.Kernels && kernels == "auto"
		for _, tied := range []bool{false, true} {
			for _, typ := range ggufgen.Types() {
				t.Run(fmt.Sprintf("%s/%s/tied=%v", kernels, typ, tied), func(t *testing.T) {
					cfg := ggufgen.TinyWide()
					cfg.Type, cfg.Tied = typ, tied
					path := ggufgen.Cached(t, cfg)
					info, err := gguf.Inspect(path)
					if err != nil {
						t.Fatal(err)
					}
					want := info.Repacked(p).Copy
					switch typ {
					case ggufgen.Q4_0, ggufgen.Q4_K, ggufgen.Q4_K_M, ggufgen.IQ4_NL:
						if (p.AVX2 || p.DotProd) && want == 0 && !p.Kernels {
							t.Error("nothing is foretold")
						}
					default:
						if want != 0 && !p.AMX {
							t.Errorf("%d bytes are foretold", want)
						}
					}
					o := runtime.Options{ModelPath: path, ContextTokens: 64, Kernels: kernels}
					if got := mustOpen(t, o).Model().RepackedBytes; got != want {
						t.Errorf("%d bytes are repacked, foretold are %d", got, want)
					}
					o.NoRepack = true
					if got := mustOpen(t, o).Model().RepackedBytes; got != 0 {
						t.Errorf("%d bytes are repacked with NoRepack", got)
					}
				})
			}
		}
	}
}

// A model computes the same with weights that ggml repacked, with those of the file, and with our kernels, up to the
// rounding of activations to 8 bits in another order of sums: mixed types, and embeddings used for lookup and for
// multiplication.
func TestRepackedModelsComputeTheSame(t *testing.T) {
	defer UseKernels("auto")
	for _, typ := range ggufgen.Types() {
		for _, tied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/tied=%v", typ, tied), func(t *testing.T) {
				cfg := ggufgen.TinyWide()
				cfg.Type, cfg.Tied = typ, tied
				o := runtime.Options{ModelPath: ggufgen.Cached(t, cfg), ContextTokens: 64, Kernels: "auto"}
				ours := mustOpen(t, o)
				o.Kernels = "ggml"
				repacked := mustOpen(t, o)
				o.NoRepack = true
				plain := mustOpen(t, o)
				for _, n := range []int{1, 3, 4, 17} { // one row, and groups of four with and without a rest
					_ = UseKernels("ggml")
					want := rows(t, plain, n)
					if d := distance(want, rows(t, repacked, n)); d > 0.05 || math.IsNaN(d) {
						t.Errorf("%d rows: the logits are %.4f apart", n, d)
					}
					_ = UseKernels("auto")
					if d := distance(want, rows(t, ours, n)); d > 0.05 || math.IsNaN(d) {
						t.Errorf("%d rows: the logits of our kernels are %.4f apart", n, d)
					}
				}
			})
		}
	}
}
