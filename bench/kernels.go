package bench

import (
	"fmt"
	"io"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
)

// KernelsConfig configures the comparison of two sets of kernels.
type KernelsConfig struct {
	Prompt int                     // tokens of a prompt, one step; 0 = none
	Rows   []int                   // sequences that decode one token each
	Rounds int                     // pairs of steps per case; the order alternates
	Use    func(name string) error // switches the process's kernels
	Log    io.Writer               // progress lines; nil = none

	// With Model, the engines' file, single rows alternate with reading it by Threads threads, with nothing computed.
	Model   string
	Threads int
}

// KernelsDepth is the number of tokens of each sequence before the decoded one.
const KernelsDepth = 32

// Kernels is one case: the same step with two sets of kernels.
type Kernels struct {
	Weights string  `json:"weights,omitempty"`
	Kernels string  `json:"kernels"`
	Case    string  `json:"case"`
	Ms      float64 `json:"ms"`       // a step, median
	StockMs float64 `json:"stock_ms"` // with ggml's kernels and repacked weights
	Ratio   float64 `json:"ratio"`    // StockMs / Ms, median of the rounds' ratios
	// PlainMs is the time to read the model's file, median of the same rounds; 0 = not measured. A step of one row
	// reads most of the file (not all embeddings) and cannot be much faster, so StockMs / PlainMs is about the best
	// Ratio.
	PlainMs float64 `json:"plain_ms,omitempty"`
}

// RunKernels alternates, for each case, a step on ours with the kernels called name and one on stock with ggml's: a
// prompt, and single tokens of as many sequences as rows. The engines have the same model, opened with the kernels that
// they run with, and at least one sequence more than the most rows.
func RunKernels(cfg KernelsConfig, name string, ours, stock runtime.Engine) ([]Kernels, error) {
	sides := []struct {
		kernels string
		eng     runtime.Engine
	}{{name, ours}, {"ggml", stock}}
	most := 0
	for _, n := range cfg.Rows {
		most = max(most, n)
	}
	var plain *plainReader
	if cfg.Model != "" {
		var err error
		if plain, err = openPlainReader(cfg.Model, cfg.Threads); err != nil {
			return nil, err
		}
		defer plain.Close()
	}
	type step struct {
		name string
		do   func(runtime.Engine) error
		lone bool // one row
	}
	var cases []step
	for _, n := range cfg.Rows {
		plural := "s"
		if n == 1 {
			plural = ""
		}
		cases = append(cases, step{fmt.Sprintf("%d row%s", n, plural), func(e runtime.Engine) error {
			b := e.Batch()
			b.Reset()
			for s := range n {
				e.SeqRemove(runtime.Seq(1+s), runtime.Pos(KernelsDepth), -1)
				b.Add(runtime.Token(100+s), runtime.Pos(KernelsDepth), runtime.Seq(1+s), true)
			}
			return e.Decode()
		}, n == 1})
	}
	if cfg.Prompt > 0 {
		cases = append(cases, step{fmt.Sprintf("prompt of %d", cfg.Prompt), func(e runtime.Engine) error {
			e.SeqRemove(0, 0, -1)
			return fill(e, 0, cfg.Prompt)
		}, false})
	}
	for _, side := range sides {
		if err := cfg.Use(side.kernels); err != nil {
			return nil, err
		}
		for s := range most {
			if err := fill(side.eng, runtime.Seq(1+s), KernelsDepth); err != nil {
				return nil, err
			}
		}
	}
	var out []Kernels
	for _, c := range cases {
		var ms [2][]float64
		var ratios, reading []float64
		for round := range cfg.Rounds + 1 {
			var took [2]float64
			var read float64
			if c.lone && plain != nil {
				read = plain.read().Seconds() * 1000
			}
			for i := range sides {
				at := (i + round) % 2
				if err := cfg.Use(sides[at].kernels); err != nil {
					return nil, err
				}
				begin := time.Now()
				if err := c.do(sides[at].eng); err != nil {
					return nil, err
				}
				took[at] = time.Since(begin).Seconds() * 1000
			}
			if round == 0 {
				continue // warm-up
			}
			ms[0], ms[1] = append(ms[0], took[0]), append(ms[1], took[1])
			ratios = append(ratios, took[1]/took[0])
			reading = append(reading, read)
		}
		row := Kernels{Kernels: name, Case: c.name, Ms: median(ms[0]), StockMs: median(ms[1]), Ratio: median(ratios),
			PlainMs: median(reading)}
		if cfg.Log != nil {
			fmt.Fprintf(cfg.Log, "%s, %s: %.2f ms, ggml's %.2f ms, ratio %.2f\n", name, row.Case, row.Ms, row.StockMs,
				row.Ratio)
		}
		out = append(out, row)
	}
	return out, nil
}

// fill decodes n tokens of sequence s from its start, in one step.
func fill(e runtime.Engine, s runtime.Seq, n int) error {
	b := e.Batch()
	b.Reset()
	for i := range n {
		b.Add(runtime.Token(100+7*i%300), runtime.Pos(i), s, i == n-1)
	}
	return e.Decode()
}

// LongContext is a prompt of many tokens and the steps behind it.
type LongContext struct {
	Kernels     string  `json:"kernels"`
	Tokens      int     `json:"tokens"`
	PromptMs    float64 `json:"prompt_ms"`
	StepMs      float64 `json:"step_ms"`       // a decoded token behind them, median
	BytesRead   float64 `json:"bytes_read"`    // of weights and cells by such a step
	GBPerSecond float64 `json:"gb_per_second"` // BytesRead / StepMs
	// PlainGBPerSecond is the rate of reading the model's file between the steps, without computing, median.
	PlainGBPerSecond float64 `json:"plain_gb_per_second"`
}

// RunLongContext computes a prompt of n tokens on eng, whose model is the file at path, in chunks of 512, and then
// steps of one token. threads read the file between the steps.
func RunLongContext(eng runtime.Engine, path string, n, steps, threads int) (LongContext, error) {
	r := LongContext{Kernels: eng.Capabilities().Kernels, Tokens: n}
	plain, err := openPlainReader(path, threads)
	if err != nil {
		return r, err
	}
	defer plain.Close()
	b := eng.Batch()
	eng.SeqRemove(0, 0, -1)
	begin := time.Now()
	for at := 0; at < n; {
		b.Reset()
		for range min(512, n-at) {
			b.Add(runtime.Token(100+7*at%300), runtime.Pos(at), 0, at == n-1)
			at++
		}
		if err := eng.Decode(); err != nil {
			return r, err
		}
	}
	r.PromptMs = time.Since(begin).Seconds() * 1000
	var ms, rates []float64
	for i := range steps {
		rates = append(rates, float64(len(plain.data))/plain.read().Seconds()/1e9)
		b.Reset()
		b.Add(runtime.Token(100+i), runtime.Pos(n+i), 0, true)
		begin := time.Now()
		if err := eng.Decode(); err != nil {
			return r, err
		}
		ms = append(ms, time.Since(begin).Seconds()*1000)
	}
	r.StepMs, r.PlainGBPerSecond = median(ms), median(rates)
	m := eng.Model()
	r.BytesRead = float64(m.Bytes) + float64(n)*float64(m.KVBytesPerToken)
	r.GBPerSecond = r.BytesRead / r.StepMs / 1e6
	return r, nil
}
