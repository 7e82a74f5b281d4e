//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama/known"
)

func openEmbedder(t testing.TB, cfg ggufgen.Config, o runtime.Options) *engine {
	t.Helper()
	o.ModelPath = ggufgen.Cached(t, cfg)
	if o.Threads == 0 {
		o.Threads = 2
	}
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e.(*engine)
}

func TestEncoderContract(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.TinyBert(), ggufgen.TinyNomic()} {
		t.Run(cfg.Name, func(t *testing.T) {
			enginetest.RunEncoder(t, func(t *testing.T, o runtime.Options) runtime.Engine {
				o.ModelPath, o.Threads = ggufgen.Cached(t, cfg), 2
				e, err := Open(o)
				if err != nil {
					t.Fatal(err)
				}
				return e
			})
		})
	}
}

// weights are the tensors of an F32 file.
type weights map[string][]float64

func readWeights(t testing.TB, path string) weights {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	_, tensors, err := gguffile.Read(f, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	w := weights{}
	for _, tensor := range tensors {
		var b bytes.Buffer
		if _, err := tensor.Data.WriteTo(&b); err != nil || tensor.Type != 0 {
			t.Fatalf("%s: type %d, %v", tensor.Name, tensor.Type, err)
		}
		v := make([]float64, b.Len()/4)
		for i := range v {
			v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b.Bytes()[4*i:])))
		}
		w[tensor.Name] = v
	}
	return w
}

// linear is x times the matrix of this name, with its bias if there is one.
func (w weights) linear(name string, x []float64) []float64 {
	m := w[name+".weight"]
	out := make([]float64, len(m)/len(x))
	for r := range out {
		for i, v := range x {
			out[r] += m[r*len(x)+i] * v
		}
	}
	if b := w[name+".bias"]; b != nil {
		add(out, b)
	}
	return out
}

func add(a, b []float64) {
	for i := range a {
		a[i] += b[i]
	}
}

// layerNorm is BERT's, with mean and bias; rmsNorm is llama's.
func (w weights) layerNorm(name string, x []float64) []float64 {
	mean, square := 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		square += (v - mean) * (v - mean) / float64(len(x))
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = (v-mean)/math.Sqrt(square+1e-12)*w[name+".weight"][i] + w[name+".bias"][i]
	}
	return out
}

func (w weights) rmsNorm(name string, x []float64) []float64 {
	square := 0.0
	for _, v := range x {
		square += v * v / float64(len(x))
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(square+1e-5) * w[name+".weight"][i]
	}
	return out
}

// rotate turns the pairs of each head by its position: (2i, 2i+1), or with halves (i, i + width/2).
func rotate(x []float64, width, pos int, base float64, halves bool) {
	for h := 0; h < len(x); h += width {
		for i := range width / 2 {
			angle := float64(pos) * math.Pow(base, -2*float64(i)/float64(width))
			a, b := h+2*i, h+2*i+1
			if halves {
				a, b = h+i, h+i+width/2
			}
			sin, cos := math.Sincos(angle)
			x[a], x[b] = x[a]*cos-x[b]*sin, x[a]*sin+x[b]*cos
		}
	}
}

// attend is attention of each row over all rows, or with causal over the rows up to its own.
func attend(q, k, v [][]float64, width int, causal bool) [][]float64 {
	shared := len(q[0]) / len(k[0])
	out := make([][]float64, len(q))
	for i := range q {
		out[i] = make([]float64, len(q[i]))
		for h := 0; h < len(q[i])/width; h++ {
			kv := h / shared * width
			n := len(k)
			if causal {
				n = i + 1
			}
			score, most := make([]float64, n), math.Inf(-1)
			for j := range score {
				for c := range width {
					score[j] += q[i][h*width+c] * k[j][kv+c] / math.Sqrt(float64(width))
				}
				most = max(most, score[j])
			}
			total := 0.0
			for j := range score {
				score[j] = math.Exp(score[j] - most)
				total += score[j]
			}
			for j := range score {
				for c := range width {
					out[i][h*width+c] += score[j] / total * v[j][kv+c]
				}
			}
		}
	}
	return out
}

func gelu(x float64) float64 {
	return x / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}
func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// hidden is the hidden state behind the last norm of each token of a text, in float64.
func (w weights) hidden(cfg ggufgen.Config, tokens []runtime.Token) [][]float64 {
	d, width := cfg.Embedding, cfg.Embedding/cfg.Heads
	encoder := cfg.Arch == ggufgen.Bert || cfg.Arch == ggufgen.NomicBert
	h := make([][]float64, len(tokens))
	for i, t := range tokens {
		h[i] = slices.Clone(w["token_embd.weight"][int(t)*d : (int(t)+1)*d])
		if !encoder {
			continue
		}
		add(h[i], w["token_types.weight"][:d])
		if cfg.Arch == ggufgen.Bert {
			add(h[i], w["position_embd.weight"][i*d:(i+1)*d])
		}
		h[i] = w.layerNorm("token_embd_norm", h[i])
	}
	for l := range cfg.Layers {
		blk := "blk." + string(rune('0'+l)) + "."
		q, k, v := make([][]float64, len(h)), make([][]float64, len(h)), make([][]float64, len(h))
		for i, x := range h {
			if !encoder {
				x = w.rmsNorm(blk+"attn_norm", x)
			}
			if w[blk+"attn_qkv.weight"] != nil {
				qkv := w.linear(blk+"attn_qkv", x)
				q[i], k[i], v[i] = qkv[:d], qkv[d:2*d], qkv[2*d:]
			} else {
				q[i], k[i], v[i] = w.linear(blk+"attn_q", x), w.linear(blk+"attn_k", x), w.linear(blk+"attn_v", x)
			}
			if cfg.Arch != ggufgen.Bert {
				rotate(q[i], width, i, float64(cfg.RopeBase), encoder)
				rotate(k[i], width, i, float64(cfg.RopeBase), encoder)
			}
		}
		mixed := attend(q, k, v, width, !encoder)
		for i := range h {
			x := w.linear(blk+"attn_output", mixed[i])
			add(x, h[i])
			if encoder {
				x = w.layerNorm(blk+"attn_output_norm", x)
			}
			in := x
			if !encoder {
				in = w.rmsNorm(blk+"ffn_norm", x)
			}
			up := w.linear(blk+"ffn_up", in)
			if w[blk+"ffn_gate.weight"] == nil {
				for j := range up {
					up[j] = gelu(up[j])
				}
			} else {
				for j, g := range w.linear(blk+"ffn_gate", in) {
					up[j] *= silu(g)
				}
			}
			h[i] = w.linear(blk+"ffn_down", up)
			add(h[i], x)
			if encoder {
				h[i] = w.layerNorm(blk+"layer_output_norm", h[i])
			}
		}
	}
	if !encoder {
		for i := range h {
			h[i] = w.rmsNorm("output_norm", h[i])
		}
	}
	return h
}

// TestEmbeddingsAgainstFloat64 compares hidden states with a reference written from the architectures' papers.
func TestEmbeddingsAgainstFloat64(t *testing.T) {
	const text = "The keeper of the light wrote down what the sea brought in."
	for _, c := range []struct {
		cfg ggufgen.Config
		tol float64 // of the largest value; ggml's GELU is a table of halves, K and V are halves
	}{{ggufgen.TinyBert(), 2e-2}, {ggufgen.TinyNomic(), 5e-3}, {ggufgen.TinyEmbed(), 5e-3}} {
		t.Run(c.cfg.Name, func(t *testing.T) {
			cfg := c.cfg
			cfg.Type = ggufgen.F32
			e := openEmbedder(t, cfg, runtime.Options{ContextTokens: 256, Batch: 128, MicroBatch: 128, Sequences: 4})
			if e.Model().Embedding != cfg.Embedding || string(e.Model().Pooling) != cfg.Pooling {
				t.Errorf("model info: %+v", e.Model())
			}
			tokens, err := e.Vocab().Tokenize(nil, text, true, false)
			if err != nil || len(tokens) < 10 {
				t.Fatalf("%d tokens, %v", len(tokens), err)
			}
			want := readWeights(t, ggufgen.Cached(t, cfg)).hidden(cfg, tokens)
			b := e.Batch()
			b.Reset()
			for i, tok := range tokens { // behind another text
				b.AddFor(tok, runtime.Pos(i), 1, runtime.RowEmbedding)
			}
			for i, tok := range tokens {
				b.AddFor(tok, runtime.Pos(i), 2, runtime.RowEmbedding)
			}
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			for i := range tokens {
				most, off := 0.0, 0.0
				for j, x := range e.Embedding(len(tokens) + i) {
					most = max(most, math.Abs(want[i][j]))
					off = max(off, math.Abs(float64(x)-want[i][j]))
				}
				if !(off <= c.tol*most) {
					t.Errorf("row %d is off by %g, its largest value is %g", i, off, most)
				}
			}
		})
	}
}

// TestEmbeddingTimesOutputIsLogits: the hidden state that a caller sees is the one that the logits were made of, in
// each of the architectures that generate.
func TestEmbeddingTimesOutputIsLogits(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA()} {
		t.Run(cfg.Name, func(t *testing.T) {
			cfg.Type = ggufgen.F32
			e := openEmbedder(t, cfg, runtime.Options{ContextTokens: 256, Batch: 64, Sequences: 1})
			w := readWeights(t, ggufgen.Cached(t, cfg))
			out := w["output.weight"]
			if out == nil {
				out = w["token_embd.weight"]
			}
			b := e.Batch()
			b.Reset()
			for i := range 12 {
				b.AddFor(runtime.Token(40+7*i), runtime.Pos(i), 0, runtime.RowEmbedding|runtime.RowLogits)
			}
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			for i := range 12 {
				h, logits := e.Embedding(i), e.Logits(i)
				for v, got := range logits {
					want := 0.0
					for j, x := range h {
						want += float64(x) * out[v*len(h)+j]
					}
					if cfg.Arch == ggufgen.Gemma2 {
						want = 1000 * math.Tanh(want/1000) // final_logit_softcapping
					}
					if math.Abs(want-float64(got)) > 1e-3*max(1, math.Abs(want)) {
						t.Fatalf("row %d: logit %d is %g, the hidden state says %g", i, v, got, want)
					}
				}
			}
		})
	}
}

func TestEncoderSizes(t *testing.T) {
	cfg := ggufgen.TinyBert() // trained on 256 tokens
	for _, c := range []struct {
		context, micro, wantContext, wantBatch int
	}{{0, 0, 256, 512}, {4096, 64, 256, 256}, {100, 64, 100, 100}, {100, 1000, 100, 1000}} {
		e := openEmbedder(t, cfg, runtime.Options{ContextTokens: c.context, MicroBatch: c.micro, Sequences: 256})
		caps := e.Capabilities()
		if caps.ContextTokens != c.wantContext || caps.MaxBatch != c.wantBatch ||
			caps.MaxSequences != known.MaxSequences-1 {
			t.Errorf("context %d, micro batch %d: %+v", c.context, c.micro, caps)
		}
		b := e.Batch()
		b.Reset()
		for i := range min(caps.ContextTokens+1, caps.MaxBatch) {
			b.AddFor(7, runtime.Pos(i), 0, runtime.RowEmbedding)
		}
		if err := e.Decode(); (err != nil) != (b.Len() > caps.ContextTokens) {
			t.Errorf("context %d: a text of %d tokens: %v", c.context, b.Len(), err)
		}
	}
}

func TestPoolingOfFiles(t *testing.T) {
	for _, c := range []struct {
		cfg  func() ggufgen.Config
		pool string
		want runtime.Pooling
	}{
		{ggufgen.Tiny, "", ""}, {ggufgen.Tiny, "none", runtime.PoolNone}, {ggufgen.Tiny, "mean", runtime.PoolMean},
		{ggufgen.TinyBert, "", runtime.PoolNone}, {ggufgen.TinyBert, "rank", runtime.PoolRank},
		{ggufgen.TinyNomic, "cls", runtime.PoolCLS},
	} {
		cfg := c.cfg()
		cfg.Pooling = c.pool
		if got := openEmbedder(t, cfg,
			runtime.Options{ContextTokens: 64, Sequences: 1}).Model().Pooling; got != c.want {
			t.Errorf("%s with pooling %q: %q, want %q", cfg.Name, c.pool, got, c.want)
		}
	}
}
