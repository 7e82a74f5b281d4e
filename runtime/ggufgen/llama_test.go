//go:build cgo && (llama_engine || llama_system)

package ggufgen_test

import (
	"fmt"
	"math"
	goruntime "runtime"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

func open(t testing.TB, cfg ggufgen.Config) runtime.Engine {
	t.Helper()
	e, err := llama.Open(runtime.Options{ModelPath: ggufgen.Cached(t, cfg), ContextTokens: 1024, Sequences: 2,
		Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// greedy decodes prompt and then n tokens, the likeliest each time. It returns them and every logits row.
func greedy(t testing.TB, e runtime.Engine, prompt []runtime.Token, n int) (out []runtime.Token, rows [][]float32) {
	t.Helper()
	b := e.Batch()
	b.Reset()
	for i, tok := range prompt {
		b.Add(tok, runtime.Pos(i), 0, i == len(prompt)-1)
	}
	for len(out) < n {
		if err := e.Decode(); err != nil {
			t.Fatal(err)
		}
		row := slices.Clone(e.Logits(b.Len() - 1))
		best := runtime.Token(0)
		for i, v := range row {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				t.Fatalf("logit %d is %v", i, v)
			}
			if v > row[best] {
				best = runtime.Token(i)
			}
		}
		out, rows = append(out, best), append(rows, row)
		b.Reset()
		b.Add(best, runtime.Pos(len(prompt)+len(out)-1), 0, true)
	}
	return out, rows
}

const prompt = "<|im_start|>user\nThe people of the world think about language models, don't they? " +
	"123<|im_end|>\n<|im_start|>assistant\n"

// llama.cpp loads every preset in every type, finds the special tokens, and what it generates is lively: not one
// token for ever, spread as Config.LogitScale says, and never the end of generation.
func TestLlamaRunsEveryType(t *testing.T) {
	// The shape of Bench135M, smaller: tied embeddings, nine heads on three.
	bench := ggufgen.Bench135M()
	bench.VocabSize, bench.Embedding, bench.Layers, bench.FFN = 2048, 288, 4, 768
	for name, base := range map[string]ggufgen.Config{"tiny": ggufgen.Tiny(), "tiny-swa": ggufgen.TinySWA(),
		"bench": bench, "tiny-wide": ggufgen.TinyWide(), "tiny-experts": ggufgen.TinyExperts()} {
		for _, typ := range ggufgen.Types() {
			super := typ == ggufgen.Q4_K || typ == ggufgen.Q5_K || typ == ggufgen.Q6_K
			if super && base.Embedding%256 != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", name, typ), func(t *testing.T) {
				cfg := base
				cfg.Type = typ
				e := open(t, cfg)
				if m := e.Model(); m.Parameters != cfg.Parameters() || m.VocabSize != cfg.VocabSize ||
					m.SlidingWindow != cfg.Window || m.Layers != cfg.Layers {
					t.Errorf("llama.cpp read %+v", m)
				}
				v := e.Vocab()
				for text, eog := range map[string]bool{"<|endoftext|>": true, "<|im_end|>": true, "<|im_start|>": false,
					"<think>": false, "</think>": false} {
					if id := v.Find(text); id == runtime.NoToken || !v.IsControl(id) || v.IsEOG(id) != eog {
						t.Errorf("%s: token %d, EOG %v", text, id, id != runtime.NoToken && v.IsEOG(id))
					}
				}
				tokens, err := v.Tokenize(nil, prompt, true, true)
				if err != nil {
					t.Fatal(err)
				}
				out, rows := greedy(t, e, tokens, 150)
				distinct := map[runtime.Token]bool{}
				for _, tok := range out {
					distinct[tok] = true
					if v.IsControl(tok) {
						t.Errorf("generated the marker %s", v.Text(tok))
					}
				}
				if len(distinct) < 20 {
					t.Errorf("150 tokens, %d distinct: %v", len(distinct), out)
				}
				if s := spread(rows); s < 2 || s > 5 {
					t.Errorf("logits spread by %.2f, want about 3", s)
				}
			})
		}
	}
}

// ggml reads of each type what the encoder wrote: logits are near those of the same weights in F32, nearer the more
// bits a type has. Rows are decoded one to a step, so that each follows from the tokens alone.
func TestLlamaReadsWhatIsWritten(t *testing.T) {
	cfg := ggufgen.TinyWide()
	cfg.Layers = 2 // errors add up with depth
	logits := func(typ ggufgen.Type) []float32 {
		cfg.Type = typ
		e := open(t, cfg)
		tokens, err := e.Vocab().Tokenize(nil, "The people of the world", true, true)
		if err != nil {
			t.Fatal(err)
		}
		var all []float32
		b := e.Batch()
		for i, tok := range tokens {
			b.Reset()
			b.Add(tok, runtime.Pos(i), 0, true)
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			all = append(all, e.Logits(0)...)
		}
		return all
	}
	exact := logits(ggufgen.F32)
	for typ, limit := range map[ggufgen.Type]float64{
		ggufgen.F16: 0.001, ggufgen.BF16: 0.005, ggufgen.Q8_0: 0.015, ggufgen.Q6_K: 0.035, ggufgen.Q5_K: 0.06,
		ggufgen.Q5_0: 0.075,
		ggufgen.Q4_K: 0.14, ggufgen.Q4_K_M: 0.14, ggufgen.Q4_0: 0.15, ggufgen.IQ4_NL: 0.15,
	} {
		var square, size float64
		for i, v := range logits(typ) {
			square += math.Pow(float64(v-exact[i]), 2)
			size += math.Pow(float64(exact[i]), 2)
		}
		if off := math.Sqrt(square / size); !(off < limit) {
			t.Errorf("%s: logits are %.3f from those of F32, want below %v", typ, off, limit)
		}
	}
}

// spread is the mean standard deviation of rows.
func spread(rows [][]float32) float64 {
	var total float64
	for _, row := range rows {
		var sum, squares float64
		for _, v := range row {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		n := float64(len(row))
		total += math.Sqrt(squares/n - sum/n*sum/n)
	}
	return total / float64(len(rows))
}

// What Tiny's comment promises: with quantised weights a row's logits do not depend on the batch's shape.
func TestQuantisedLogitsAreExactAcrossBatchShapes(t *testing.T) {
	if goruntime.GOARCH != "amd64" {
		t.Skip("measured on amd64 only: other kernels may add up in another order")
	}
	e := open(t, ggufgen.Tiny())
	tokens, err := e.Vocab().Tokenize(nil, prompt, true, true)
	if err != nil {
		t.Fatal(err)
	}
	out, rows := greedy(t, e, tokens, 100)
	e.SeqRemove(0, 0, -1)
	b := e.Batch()
	b.Reset()
	all := append(slices.Clone(tokens), out...)
	for i, tok := range all[:len(all)-1] {
		b.Add(tok, runtime.Pos(i), 0, i >= len(tokens)-1)
	}
	if err := e.Decode(); err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if !slices.Equal(e.Logits(len(tokens)-1+i), row) {
			t.Fatalf("row %d of one batch differs from its own batch of one", i)
		}
	}
}

// A changed token far back changes the logits: attention really reads the context, so that a test comparing
// outputs would notice a wrong KV cell.
func TestOutputDependsOnTheContext(t *testing.T) {
	e := open(t, ggufgen.Tiny())
	tokens, err := e.Vocab().Tokenize(nil, prompt, true, true)
	if err != nil {
		t.Fatal(err)
	}
	_, a := greedy(t, e, tokens, 1)
	e.SeqRemove(0, 0, -1)
	tokens[5]++
	_, b := greedy(t, e, tokens, 1)
	var change float64
	for i := range a[0] {
		change = max(change, math.Abs(float64(a[0][i]-b[0][i])))
	}
	if change < 0.1 {
		t.Errorf("another token at position 5 of %d changed the logits by %v at most", len(tokens), change)
	}
}

func TestRatesAreAsked(t *testing.T) {
	cfg := ggufgen.Tiny()
	cfg.ThinkCloseEvery, cfg.EndEvery = 30, 0
	count := 0
	for seed := range uint64(4) {
		cfg.Seed = seed + 1
		e := open(t, cfg)
		tokens, err := e.Vocab().Tokenize(nil, prompt, true, true)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := greedy(t, e, tokens, 300)
		for _, tok := range out {
			if tok == e.Vocab().Find("</think>") {
				count++
			}
			if e.Vocab().IsEOG(tok) {
				t.Errorf("seed %d: generated %s", cfg.Seed, e.Vocab().Text(tok))
			}
		}
	}
	if count < 10 || count > 160 { // 40 asked for; loops in greedy text make it vary
		t.Errorf("%d </think> in 1,200 tokens, asked for one in 30", count)
	}
}
