package ggufgen

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
)

func write(t *testing.T, cfg Config) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := Write(path, cfg); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// apart takes a file apart.
func apart(t *testing.T, data []byte) (map[string]any, []gguffile.Tensor) {
	t.Helper()
	pairs, tensors, err := gguffile.Read(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	kv := map[string]any{}
	for _, p := range pairs {
		kv[p.Key] = p.Value
	}
	return kv, tensors
}

func TestWriteIsReadBack(t *testing.T) {
	for name, base := range map[string]Config{"tiny": Tiny(), "tiny-swa": TinySWA(), "tiny-wide": TinyWide(),
		"tiny-experts": TinyExperts(), "tiny-bert": TinyBert(), "tiny-nomic-bert": TinyNomic(),
		"tiny-embed": TinyEmbed(), "tiny-rank": TinyRank(), "tiny-eagle3": EagleOf(TinyTarget(false), HeadRandom),
		"knows":       EagleOf(TinyTarget(true), HeadKnows),
		"tiny-dflash": DFlashOf(TinyTarget(false), HeadRandom, 7),
		"blocks":      DFlashOf(TurnTarget(), HeadKnows, 5)} {
		for _, typ := range Types() {
			if base.Embedding%max(storages[typ].block, 1) != 0 {
				continue
			}
			t.Run(name+"/"+string(typ), func(t *testing.T) {
				cfg := base
				cfg.Type = typ
				data := write(t, cfg)
				if limit := 1 << 20; name != "tiny-wide" && len(data) > limit {
					t.Errorf("file of %d bytes: a test model is meant to be small", len(data))
				}
				info, err := gguf.Read(bytes.NewReader(data), int64(len(data)))
				if err != nil {
					t.Fatal(err)
				}
				if info.Architecture != string(cfg.Arch) || info.TrainContext != int64(cfg.Context) ||
					info.ChatTemplate != cfg.Template || info.VocabSize != cfg.VocabSize {
					t.Errorf("metadata: %s, %d tokens of context, template %q, %d tokens", info.Architecture,
						info.TrainContext, info.ChatTemplate, info.VocabSize)
				}
				if info.Parameters != cfg.Parameters() || info.TensorBytes != cfg.weightBytes() {
					t.Errorf("%d parameters in %d bytes, want %d in %d", info.Parameters, info.TensorBytes,
						cfg.Parameters(), cfg.weightBytes())
				}
				_, tensors := apart(t, data)
				last := tensors[len(tensors)-1]
				var end bytes.Buffer
				if _, err := last.Data.WriteTo(&end); err != nil || !bytes.HasSuffix(data, end.Bytes()) {
					t.Errorf("the file does not end with its last tensor, %s (%v)", last.Name, err)
				}
			})
		}
	}
}

func TestBench135MShape(t *testing.T) {
	cfg := Bench135M()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	// 49,152 × 576 embeddings, 30 layers, the final norm.
	layer := uint64(2*576*576 + 2*192*576 + 3*1536*576 + 2*576)
	if want := 49_152*576 + 30*layer + 576; cfg.Parameters() != want {
		t.Errorf("%d parameters, want %d", cfg.Parameters(), want)
	}
}

// A row that is no whole super-blocks cannot be a plain type of super-blocks; the mixture has another type for it.
func TestSuperBlocksWantWideRows(t *testing.T) {
	for _, typ := range []Type{Q4_K, Q5_K, Q6_K} {
		cfg := Tiny()
		cfg.Type = typ
		if err := cfg.Validate(); !errors.Is(err, ErrConfig) ||
			!strings.Contains(err.Error(), "Embedding is 64, want a multiple of 256") {
			t.Errorf("%s: %v", typ, err)
		}
	}
	cfg := Tiny()
	cfg.Type = Q4_K_M
	if err := cfg.Validate(); err != nil {
		t.Errorf("q4_k_m: %v", err)
	}
}

// Which tensors of Q4_K_M are of which type, worked out by hand from llama.cpp's quantiser (llama_tensor_get_type).
func TestMixtureIsDealtOutAsLlamaCppDoes(t *testing.T) {
	kinds := func(c Config) map[string]string {
		kv, tensors := apart(t, write(t, c))
		if got := kv["general.file_type"]; got != uint32(15) {
			t.Errorf("%s: general.file_type is %v, want 15", c.Name, got)
		}
		kinds := map[string]string{}
		for _, ts := range tensors {
			typ, _ := gguffile.TypeOf(ts.Type)
			kinds[ts.Name] = typ.Name
		}
		return kinds
	}
	want := func(name string, got map[string]string, layers []int, wide, more, other string) {
		for layer := range 16 {
			blk := "blk." + itoa(layer) + "."
			if got[blk+"attn_q.weight"] == "" {
				break
			}
			expect := other
			if slices.Contains(layers, layer) {
				expect = more
			}
			for _, part := range []string{"attn_v", "ffn_down"} {
				if g := got[blk+part+".weight"]; g != expect {
					t.Errorf("%s: %s%s is %s, want %s", name, blk, part, g, expect)
				}
			}
			for _, part := range []string{"attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"} {
				if g := got[blk+part+".weight"]; g != other {
					t.Errorf("%s: %s%s is %s, want %s", name, blk, part, g, other)
				}
			}
		}
		if g := got["output.weight"]; g != "" && g != wide {
			t.Errorf("%s: output is %s, want %s", name, g, wide)
		}
	}
	wide := TinyWide()
	wide.Type = Q4_K_M
	untied := kinds(wide) // 8 layers: the first eighth is layer 0, the last layer 7, every third between is 3 and 6
	want("untied", untied, []int{0, 3, 6, 7}, "Q6_K", "Q6_K", "Q4_K")
	if untied["token_embd.weight"] != "Q4_K" || untied["output.weight"] != "Q6_K" {
		t.Errorf("untied: embeddings %s, output %s", untied["token_embd.weight"], untied["output.weight"])
	}
	wide.Layers, wide.Tied = 16, true
	tied := kinds(wide)
	want("tied", tied, []int{0, 1, 4, 7, 10, 13, 14, 15}, "", "Q6_K", "Q4_K")
	if tied["token_embd.weight"] != "Q6_K" {
		t.Errorf("tied: embeddings are %s, want Q6_K", tied["token_embd.weight"])
	}
	narrow := Tiny()
	narrow.Type, narrow.Layers = Q4_K_M, 8
	want("narrow", kinds(narrow), []int{0, 3, 6, 7}, "Q8_0", "Q8_0", "Q5_0")
}

func TestBenchShapes(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want uint64
	}{
		{Bench135MWide(), 49_152*768 + 16*(2*768*768+2*256*768+3*2048*768+2*768) + 768},
		{Bench30M(), 2*2048*2048 + (2*2048*2048 + 2*256*2048 + 3*2048*2048 + 2*2048) + 2048},
		{Bench1B(), 2*32_000*2048 + 22*(2*2048*2048+2*256*2048+3*5632*2048+2*2048) + 2048},
	} {
		if err := c.cfg.Validate(); err != nil {
			t.Errorf("%s: %v", c.cfg.Name, err)
		}
		if got := c.cfg.Parameters(); got != c.want {
			t.Errorf("%s has %d parameters, want %d", c.cfg.Name, got, c.want)
		}
	}
}

func TestSameConfigSameBytes(t *testing.T) {
	cfg := Tiny()
	a, b := write(t, cfg), write(t, cfg)
	if !bytes.Equal(a, b) {
		t.Error("two files of one config differ")
	}
	cfg.Seed++
	if bytes.Equal(a, write(t, cfg)) {
		t.Error("another seed gave the same file")
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for field, breakIt := range map[string]func(*Config){
		"Type":            func(c *Config) { c.Type = "q3_k" },
		"Arch":            func(c *Config) { c.Arch = "mamba" },
		"VocabSize":       func(c *Config) { c.VocabSize = 12 },
		"Embedding":       func(c *Config) { c.Embedding = 65 },
		"Layers":          func(c *Config) { c.Layers = 0 },
		"Heads":           func(c *Config) { c.Heads = 0 },
		"KVHeads":         func(c *Config) { c.Heads, c.KVHeads, c.HeadDim = 4, 3, 32 },
		"HeadDim":         func(c *Config) { c.HeadDim = 3 },
		"FFN":             func(c *Config) { c.FFN = 100 },
		"Context":         func(c *Config) { c.Context = -1 },
		"Window":          func(c *Config) { c.Window = 8 },
		"Tied":            func(c *Config) { c.Arch, c.Window = Gemma2, 8 },
		"LogitScale":      func(c *Config) { c.LogitScale = float32(math.NaN()) },
		"RopeBase":        func(c *Config) { c.RopeBase = -1 },
		"ThinkCloseEvery": func(c *Config) { c.NoThink, c.ThinkCloseEvery = true, 10 },
		"EndEvery":        func(c *Config) { c.EndEvery = -1 },
	} {
		cfg := Tiny()
		breakIt(&cfg)
		path := filepath.Join(t.TempDir(), "m.gguf")
		err := Write(path, cfg)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s: error %v", field, err)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
			t.Errorf("%s: files left behind: %v", field, left)
		}
	}
}

func TestCachedOncePerConfig(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	cfg := Tiny()
	paths := make([]string, 8)
	var wg sync.WaitGroup
	for i := range paths {
		wg.Go(func() { paths[i] = Cached(t, cfg) })
	}
	wg.Wait()
	if slices.Sort(paths); paths[0] != paths[len(paths)-1] {
		t.Fatalf("one config, several files: %v", paths)
	}
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(paths[0], 100); err != nil { // as a full disk would leave it
		t.Fatal(err)
	}
	again, err := os.ReadFile(Cached(t, cfg))
	if err != nil || !bytes.Equal(again, whole) {
		t.Errorf("a truncated cache file was not replaced (%v)", err)
	}
	if files, _ := os.ReadDir(filepath.Dir(paths[0])); len(files) != 1 {
		t.Errorf("%d files in the cache, want 1", len(files))
	}
	cfg.Seed++
	if Cached(t, cfg) == paths[0] {
		t.Error("another config, the same file")
	}
}

func TestVocabulary(t *testing.T) {
	for _, size := range []int{MinVocab, 512, 4096} {
		v := newVocabulary(size, true)
		if len(v.tokens) != size || len(v.types) != size {
			t.Fatalf("%d tokens and %d types, want %d", len(v.tokens), len(v.types), size)
		}
		known := map[string]bool{}
		for i, tok := range v.tokens {
			if known[tok] {
				t.Fatalf("token %q twice", tok)
			}
			known[tok] = true
			if control := i < len(v.special); control != (v.types[i] == typeControl) {
				t.Fatalf("token %d %q has type %d", i, tok, v.types[i])
			}
		}
		for _, m := range v.merges {
			left, right, ok := strings.Cut(m, " ")
			if !ok || !known[left] || !known[right] || !known[left+right] {
				t.Fatalf("merge %q joins or makes something that is no token", m)
			}
		}
	}
	for _, size := range []int{4096} {
		a, b := newVocabulary(size, true), newVocabulary(size, true)
		if !slices.Equal(a.tokens, b.tokens) || !slices.Equal(a.merges, b.merges) {
			t.Error("training is not deterministic")
		}
		if !slices.Contains(a.tokens, "Ġthe") || !slices.Contains(a.tokens, "Ġpeople") {
			t.Error("common words are no tokens")
		}
	}
}

// The incremental counts give what recounting after every merge gives.
func TestTrainBPEAgainstRecount(t *testing.T) {
	words := []word{{"aaaa", 3}, {"abab", 5}, {" banana", 4}, {"bandana", 2}, {"aab", 7}}
	_, got := trainBPE(words, 10)
	if want := recountBPE(words, len(got)); !slices.Equal(got, want) {
		t.Errorf("merges %v, want %v", got, want)
	}
}

func recountBPE(words []word, n int) (merges []string) {
	table := byteRunes()
	order := map[string]int{}
	for i, s := range table {
		order[s] = i
	}
	split := make([][]string, len(words))
	for i, w := range words {
		for _, b := range []byte(w.text) {
			split[i] = append(split[i], table[b])
		}
	}
	for range n {
		counts := map[[2]string]int{}
		for i, s := range split {
			for j := 1; j < len(s); j++ {
				counts[[2]string{s[j-1], s[j]}] += words[i].count
			}
		}
		var best [2]string
		for p, c := range counts {
			b := counts[best]
			older := order[p[0]] < order[best[0]] || p[0] == best[0] && order[p[1]] < order[best[1]]
			if c > b || c == b && older {
				best = p
			}
		}
		if counts[best] == 0 {
			break
		}
		merges = append(merges, best[0]+" "+best[1])
		joined := best[0] + best[1]
		if _, ok := order[joined]; !ok {
			order[joined] = len(order)
		}
		for i, s := range split {
			for j := 1; j < len(s); j++ {
				if s[j-1] == best[0] && s[j] == best[1] {
					s[j-1] = joined
					s = slices.Delete(s, j, j+1)
				}
			}
			split[i] = s
		}
	}
	return merges
}

func TestGaussianMoments(t *testing.T) {
	row := make([]float32, 1<<16)
	gaussian(row, rand.NewPCG(1, 2), 0.5)
	var sum, squares, fourth float64
	for _, v := range row {
		sum += float64(v)
		squares += float64(v) * float64(v)
		fourth += math.Pow(float64(v), 4)
	}
	n := float64(len(row))
	variance := squares / n
	if mean := sum / n; math.Abs(mean) > 0.01 || math.Abs(math.Sqrt(variance)-0.5) > 0.01 {
		t.Errorf("mean %v, standard deviation %v", mean, math.Sqrt(variance))
	}
	// Kurtosis of the sum of four uniforms: 3 - 1.2/4.
	if k := fourth / n / variance / variance; math.Abs(k-2.7) > 0.1 {
		t.Errorf("kurtosis %v, want 2.7", k)
	}
}

func BenchmarkWriteTiny(b *testing.B) {
	path := filepath.Join(b.TempDir(), "m.gguf")
	for b.Loop() {
		if err := Write(path, Tiny()); err != nil {
			b.Fatal(err)
		}
	}
}
