// Command cost measures what a step of an answer takes with and without what a signal needs, in processor time.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"syscall"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

func cpu() float64 {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e3
}

func main() {
	model := flag.String("m", "models/uma-redundant.gguf", "")
	depth := flag.Int("depth", 200, "")
	rounds := flag.Int("rounds", 15, "")
	steps := flag.Int("steps", 60, "")
	flag.Parse()
	if err := run(*model, *depth, *rounds, *steps); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var keep runtime.Head

func run(model string, depth, rounds, steps int) error {
	open := func(head bool) (runtime.Engine, error) {
		e, err := llama.Open(runtime.Options{ModelPath: model, Batch: 512, Sequences: 4, Threads: 1, ContextTokens: 4096})
		if err != nil || !head {
			return e, err
		}
		info := e.Model()
		cfg := ggufgen.Tiny()
		cfg.Embedding, cfg.Layers, cfg.VocabSize = info.Embedding, info.Layers, info.VocabSize
		h := ggufgen.EagleOf(cfg, ggufgen.HeadRandom)
		h.Target.Reads = [3]int{info.Layers / 3, 2 * info.Layers / 3, info.Layers - 1}
		file := os.TempDir() + "/uma-cost-head.gguf"
		if err := ggufgen.Write(file, h); err != nil {
			return nil, err
		}
		hd := e.(runtime.Headed)
		if keep, err = hd.OpenHead(runtime.HeadOptions{ContextTokens: 256, Batch: 64, Sequences: 1,
			File: &runtime.Options{ModelPath: file}}); err != nil {
			return nil, err
		}
		hd.KeepStates(true)
		return e, nil
	}
	plain, err := open(false)
	if err != nil {
		return err
	}
	defer plain.Close()
	kept, err := open(true)
	if err != nil {
		return err
	}
	defer func() { keep.Close(); kept.Close() }()
	width := plain.Model().Embedding
	w := make([]float32, 4*width)
	for i := range w {
		w[i] = float32(i%7) - 3
	}
	sink := 0.0
	type way struct {
		name string
		e    runtime.Engine
		what int8
		fork int
		dot  bool
	}
	ways := []way{
		{"a step of 1 row", plain, runtime.RowLogits, 0, false},
		{"with 3 rows of a fork, and their entropy", plain, runtime.RowLogits, 3, false},
		{"1 row, its last hidden state kept", plain, runtime.RowLogits | runtime.RowEmbedding, 0, true},
		{"1 row, inputs of 3 layers kept", kept, runtime.RowLogits, 0, true},
		{"1 row, both", kept, runtime.RowLogits | runtime.RowEmbedding, 0, true},
	}
	for _, e := range []runtime.Engine{plain, kept} {
		e.Batch().Reset()
		for i := range depth {
			e.Batch().Add(int32(20+i%200), runtime.Pos(i), 0, i == depth-1)
		}
		if err := e.Decode(); err != nil {
			return err
		}
	}
	times := make([][]float64, len(ways))
	for range rounds {
		for k, y := range ways {
			y.e.SeqRemove(0, runtime.Pos(depth), -1)
			step := func(i int) error {
				b := y.e.Batch()
				b.Reset()
				pos := runtime.Pos(depth + i)
				row := b.AddFor(30, pos, 0, y.what)
				if y.fork > 0 {
					y.e.SeqRemove(1, 0, -1)
					y.e.SeqCopy(0, 1, 0, pos)
					for j := range y.fork {
						what := int8(0)
						if j == y.fork-1 {
							what = runtime.RowProbe
						}
						b.AddFor(int32(31+j), pos+runtime.Pos(j), 1, what)
					}
				}
				if err := y.e.Decode(); err != nil {
					return err
				}
				if y.fork > 0 {
					var st runtime.RowStats
					meridian.ProberOf(y.e).ProbeRow(b.Len()-1, nil, &st)
					y.e.SeqRemove(1, 0, -1)
				}
				if y.dot {
					var x []float32
					if y.what&runtime.RowEmbedding != 0 {
						x = y.e.(runtime.Embedder).Embedding(row)
					}
					if y.e == kept {
						x = append(slices.Clip(x), y.e.(runtime.Headed).State(row)...)
					}
					for j, v := range x {
						sink += float64(v) * float64(w[j])
					}
				}
				return nil
			}
			for i := range 5 {
				if err := step(i); err != nil {
					return err
				}
			}
			t := cpu()
			for i := range steps {
				if err := step(5 + i); err != nil {
					return err
				}
			}
			times[k] = append(times[k], (cpu()-t)/float64(steps))
		}
	}
	for k, y := range ways {
		var ratio []float64
		for i := range times[k] {
			ratio = append(ratio, times[k][i]/times[0][i])
		}
		slices.Sort(ratio)
		slices.Sort(times[k])
		n := len(ratio)
		fmt.Printf("%-45s %8.1f us, ratio %.3f (%.3f … %.3f)\n", y.name, times[k][n/2], ratio[n/2], ratio[n/4], ratio[3*n/4])
	}
	if math.IsNaN(sink) {
		fmt.Println("nan")
	}
	return nil
}
