package ggufgen

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
)

// Scales of the random weights. All are standard deviations relative to variance-preserving (1/√fan-in) unless
// said otherwise; see the package comment for what they are for.
const (
	embedStd   = 0.05 // of an embedding entry, absolute
	biasEntry  = 0.5  // an ordinary token's entry in the bias channel, absolute
	biasLogits = 15   // what that entry adds to an ordinary token's logit
	queryKey   = 1.7  // attention scores then have a standard deviation of 1.7² ≈ 3
	valueOut   = 1.3
	ffnGain    = 1.3
	rmsEpsilon = 1e-5

	normEpsilon = 1e-12 // of LayerNorm, as in BERT
)

// tensor is one entry of the file: rows × cols in row-major order, cols being ggml's first dimension.
type tensor struct {
	name       string
	rows, cols int // rows = 0 marks a vector of cols
	storage    storage
	seed       uint64
	std        float32
	zeroRow0   bool                         // the layer must not write the bias channel
	experts    int                          // matrices of which the rows are, one after the other; 0 = one
	norm       func() []float32             // a vector's values; nil for matrices
	bias       []float32                    // the bias channel's entry per row; nil outside embedding and output
	fill       func(row int, dst []float32) // sets the entries of a row that are not 0; nil: they are random
	ids        []int64                      // a vector's values, where they are no weights
}

func (t *tensor) elements() uint64 { return uint64(max(t.rows, 1)) * uint64(t.cols) }

func (t *tensor) bytes() uint64 {
	return t.elements() / uint64(t.storage.block) * uint64(t.storage.blockBytes)
}

// shape is in ggml's order: fastest dimension first.
func (t *tensor) shape() []uint64 {
	if t.rows == 0 {
		return []uint64{uint64(t.cols)}
	}
	if t.experts > 0 {
		return []uint64{uint64(t.cols), uint64(t.rows / t.experts), uint64(t.experts)}
	}
	return []uint64{uint64(t.cols), uint64(t.rows)}
}

// WriteTo streams the tensor in its stored form, about 256 KiB at a time. It may be called again and gives the
// same bytes.
func (t *tensor) WriteTo(w io.Writer) (int64, error) {
	if t.ids != nil {
		b, err := binary.Append(nil, binary.LittleEndian, t.ids)
		if err != nil {
			return 0, err
		}
		n, err := w.Write(b)
		return int64(n), err
	}
	if t.norm != nil {
		n, err := w.Write(encodeF32(nil, t.norm()))
		return int64(n), err
	}
	const chunk = 256 << 10
	var written int64
	row := make([]float32, t.cols)
	buf := make([]byte, 0, chunk+t.cols*4)
	rng := rand.NewPCG(t.seed, 0x9e3779b97f4a7c15)
	for r := range t.rows {
		switch {
		case t.fill != nil:
			clear(row)
			t.fill(r, row)
		case t.zeroRow0 && r%(t.rows/max(t.experts, 1)) == 0:
			clear(row)
		default:
			gaussian(row, rng, t.std)
		}
		if t.bias != nil {
			row[0] = t.bias[r]
		}
		buf = t.storage.encode(buf, row)
		if len(buf) >= chunk || r == t.rows-1 {
			n, err := w.Write(buf)
			written += int64(n)
			if err != nil {
				return written, err
			}
			buf = buf[:0]
		}
	}
	return written, nil
}

// gaussian fills row with numbers of mean 0 and standard deviation std: the sum of four uniform 16-bit numbers
// (Irwin–Hall, n = 4), which is close enough to normal, four times faster than an exact sampler and the same to
// the bit on every machine. Largest magnitude 3.46 std.
func gaussian(row []float32, rng *rand.PCG, std float32) {
	const n = 1 << 16
	scale := std / float32(n*math.Sqrt(4.0/12))
	for i := range row {
		u := rng.Uint64()
		sum := int32(u&0xffff) + int32(u>>16&0xffff) + int32(u>>32&0xffff) + int32(u>>48)
		row[i] = float32(sum-2*(n-1)) * scale
	}
}

// planned is the list of a model's tensors as plan makes it.
type planned struct {
	c   Config
	all []*tensor
}

// add appends a tensor. Its random entries follow from its name and Config.Seed.
func (p *planned) add(t *tensor) *tensor {
	t.seed = p.seedOf(t.name)
	p.all = append(p.all, t)
	return t
}

func (p *planned) seedOf(name string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name)
	return h.Sum64() ^ p.c.Seed*0xbf58476d1ce4e5b9
}

// matrix appends a matrix of random entries, whose products with a row of unit variance have the deviation gain.
func (p *planned) matrix(part, name string, layer, rows, cols int, gain float64) *tensor {
	return p.add(&tensor{name: name + ".weight", rows: rows, cols: cols, storage: p.c.storageOf(part, layer, cols),
		std: float32(gain / math.Sqrt(float64(cols)))})
}

// vector appends a vector of n values.
func (p *planned) vector(name string, n int, value func(i int) float64) {
	p.add(&tensor{name: name + ".weight", cols: n, storage: storages[F32], norm: func() []float32 {
		w := make([]float32, n)
		for i := range w {
			w[i] = float32(value(i))
		}
		return w
	}})
}

// channelNorm appends a norm of n weights: channel0, then others.
func (p *planned) channelNorm(name string, n int, others, channel0 float64) {
	p.vector(name, n, func(i int) float64 {
		if i == 0 {
			return channel0
		}
		return others
	})
}

// filled appends a matrix of a head: random, or as fill says where the head knows.
func (p *planned) filled(part, name string, rows, cols int, gain float64, fill func(row int, dst []float32)) {
	t := p.matrix(part, name, 0, rows, cols, gain)
	if p.c.Head == HeadKnows { // products of blocks would round the embedding by its largest channel
		t.fill, t.storage = fill, storages[F16]
	}
}

// plan lists the model's tensors. v may be nil when only their shapes are wanted.
func (c Config) plan(v *vocabulary) []*tensor {
	if c.Arch.encoder() {
		return c.planEncoder()
	}
	switch c.Arch {
	case GPT2:
		return c.planLearned(v)
	case Eagle3:
		return c.planEagle()
	case DFlash:
		return c.planDFlash()
	case Gemma4Assistant:
		return c.planAssistant()
	case DeepSeek4:
		return c.planDeepSeek4()
	}
	d := c.Embedding
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	p := &planned{c: c}
	layer := 0
	matrix := func(part, name string, rows, cols int, gain float64) *tensor {
		return p.matrix(part, name, layer, rows, cols, gain)
	}
	// norm weights are 1 but for the bias channel, which the layers neither see nor (post norms) change.
	norm := func(name string, others, channel0 float64) { p.channelNorm(name, d, others, channel0) }

	bias := c.biasChannel(v)
	of := ""
	if c.Tied {
		of = partOutput
	}
	embd := matrix(of, "token_embd", c.VocabSize, d, embedStd*math.Sqrt(float64(d)))
	embd.bias = bias
	if !c.Tied {
		matrix(partOutput, "output", c.VocabSize, d, embedStd*math.Sqrt(float64(d))).bias = bias
	}
	for layer = range c.Layers {
		blk := "blk." + itoa(layer) + "."
		if c.Arch == Gemma4 {
			q, kv = c.Heads*c.headDim4(layer), c.KVHeads*c.headDim4(layer)
		}
		norm(blk+"attn_norm", 1, 0)
		if c.delta(layer) {
			c.planDelta(blk, p.add, matrix)
		} else {
			gates := 1 // of Qwen35 the second half of a query is its gate
			if c.Arch == Qwen35 {
				gates = 2
			}
			matrix("", blk+"attn_q", gates*q, d, queryKey)
			matrix("", blk+"attn_k", kv, d, queryKey)
			matrix(partValue, blk+"attn_v", kv, d, valueOut)
			switch c.Arch { // norms have taken the scale of the matrices
			case Maincoder, Qwen3VL, Qwen35, LFM2:
				p.vector(blk+"attn_q_norm", c.HeadDim, func(int) float64 { return queryKey })
				p.vector(blk+"attn_k_norm", c.HeadDim, func(int) float64 { return queryKey })
			}
			matrix("", blk+"attn_output", d, q, valueOut).zeroRow0 = true
		}
		if c.Arch == Gemma4 {
			for _, name := range []string{"attn_q_norm", "attn_k_norm"} {
				p.vector(blk+name, c.headDim4(layer), c.queryKey4(layer))
			}
		}
		if c.Arch == GLM4MoE || c.Arch == Qwen35 {
			norm(blk+"post_attention_norm", 1, 0)
		} else {
			norm(blk+"ffn_norm", 1, 0)
		}
		if c.Experts > 0 {
			c.planExperts(blk, matrix)
		} else {
			matrix("", blk+"ffn_gate", c.FFN, d, ffnGain)
			matrix("", blk+"ffn_up", c.FFN, d, ffnGain)
			matrix(partDown, blk+"ffn_down", d, c.FFN, ffnGain).zeroRow0 = true
		}
		if c.Arch == Gemma2 || c.Arch == Gemma4 {
			norm(blk+"post_attention_norm", 1, 0)
			norm(blk+"post_ffw_norm", 1, 0)
		}
	}
	others, channel0 := c.outputNorm()
	last := "output_norm"
	if c.Arch == LFM2 {
		last = "token_embd_norm"
	}
	norm(last, others, channel0)
	if c.Arch == Gemma4 {
		p.vector("rope_freqs", c.fullHeadDim()/2, c.ropeFactor4)
	}
	if c.Copies {
		c.copies(p.all)
	}
	if c.Still {
		still(p.all)
	}
	if c.Turns {
		c.turns(p.all)
	}
	if c.Head != NoHead {
		layer = c.Layers
		c.planHead(&p.all, matrix, norm)
	}
	return p.all
}

// outputNorm returns the weights of the final norm, of channel 0 and of the others. It turns a unit-RMS state into
// logits: entries embedStd, d of them, give a standard deviation of embedStd·√d, and the bias channel holds
// biasEntry / residualRMS.
func (c Config) outputNorm() (others, channel0 float64) {
	entry := biasEntry * c.embedScale() / c.residualRMS()
	return float64(c.LogitScale) / (embedStd * math.Sqrt(float64(c.Embedding))), biasLogits / (entry * biasEntry)
}

// embedScale returns the factor by which the architecture multiplies token embeddings.
func (c Config) embedScale() float64 {
	if c.Arch == Gemma2 || c.Arch == Gemma4 {
		return math.Sqrt(float64(c.Embedding))
	}
	return 1
}

// residualRMS estimates the root mean square of the residual stream after the last layer.
func (c Config) residualRMS() float64 {
	e := c.embedScale()
	embed := e * e * (embedStd*embedStd + biasEntry*biasEntry/float64(c.Embedding))
	// A layer adds what attention mixes (sharp attention keeps about 0.6 of a value's variance) and what SwiGLU
	// passes (E[silu(g)²] for g ~ N(0, 1.3²) is about 0.68 and times up and down again), or unit variance each
	// where a post norm says so.
	const attention, feedForward = 0.6 * valueOut * valueOut * valueOut * valueOut,
		0.68 * ffnGain * ffnGain * ffnGain * ffnGain
	layer := attention + feedForward
	if c.Arch == Gemma2 || c.Arch == Gemma4 {
		layer = 2
	}
	return math.Sqrt(embed + float64(c.Layers)*layer)
}

// biasChannel returns every token's entry in channel 0, chosen so that its logit is raised by biasLogits plus what its
// rate asks for; 0 for markers that should never be generated.
func (c Config) biasChannel(v *vocabulary) []float32 {
	if v == nil {
		return nil
	}
	entries := make([]float32, c.VocabSize)
	for i := range entries {
		if i >= len(v.special) {
			entries[i] = biasEntry
		}
	}
	every := func(token string, n int) {
		if id, ok := v.find(token); ok && n > 0 {
			entries[id] = float32(biasEntry * (1 + c.rateLogits(n)/biasLogits))
		}
	}
	every(tokenThinkEnd, c.ThinkCloseEvery)
	every(tokenIMEnd, c.EndEvery)
	return entries
}

// rateLogits returns the bias that makes one Gaussian logit the largest of VocabSize about once in n draws.
func (c Config) rateLogits(n int) float64 {
	quantile := func(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
	largest := quantile(1 - 1/float64(c.VocabSize+1))
	return float64(c.LogitScale) * (largest - quantile(1-1/float64(n+1)))
}
