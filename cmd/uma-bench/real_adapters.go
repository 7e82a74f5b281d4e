package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/uma-serve/uma-serve/bench/real"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

const (
	adapterStreams = 16
	adapterTokens  = 128 // of an answer that is compared
	adapterRate    = 64  // of one whose speed is measured
	adapterRounds  = 1
	// nearTieF32 is the largest gap of a near tie, in nats, where neither weights nor activations are rounded to 8
	// bits. The KV cache has 16.
	nearTieF32 = 0.02
	// adapterScale makes other answers of a published model's, and sentences still.
	adapterScale = 0.15
)

// adapterChecks are the check with the model's weights, whose speed is measured, and with the same in F32: sums of
// those differ by so little that a parting is no rounding.
func (o *realOptions) adapterChecks(ctx context.Context, r *real.Report, add func(real.Check)) error {
	dir, err := os.MkdirTemp("", "uma-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, err := writeAdapters(dir, o.model)
	if err != nil {
		return err
	}
	if err := o.adaptersBeside(ctx, r, "adapters", files, adapterRounds, nearTie, add); err != nil {
		return err
	}
	path, remove, err := real.CopyF32(ctx, o.llamaQuantize, o.model)
	if err != nil {
		return err
	}
	copied := *o
	copied.model = path
	return errors.Join(copied.adaptersBeside(ctx, r, "adapters, F32", files, 0, nearTieF32, add), remove())
}

// writeAdapters writes two adapters for a model of the Llama family to dir.
func writeAdapters(dir, model string) (files []string, err error) {
	info, err := gguf.Inspect(model)
	if err != nil {
		return nil, err
	}
	if info.Architecture != string(ggufgen.Llama) || len(info.Heads) != 1 || len(info.KVHeads) != 1 ||
		len(info.FeedForward) != 1 {
		return nil, usageError{fmt.Errorf("adapters are made for models of architecture llama, this one is %q",
			info.Architecture)}
	}
	cfg := ggufgen.Bench135M()
	cfg.Type, cfg.VocabSize, cfg.Embedding, cfg.Layers = ggufgen.F32, info.VocabSize, int(info.Embedding),
		int(info.Layers)
	cfg.Heads, cfg.KVHeads, cfg.HeadDim, cfg.FFN = int(info.Heads[0]), int(info.KVHeads[0]), int(info.KeyLength),
		int(info.FeedForward[0])
	for i := range 2 {
		path := filepath.Join(dir, fmt.Sprintf("adapter%d.gguf", i))
		a := ggufgen.Adapter{Rank: 16, Alpha: 16, Seed: uint64(1 + i)}
		if err := ggufgen.WriteAdapter(path, cfg, a); err != nil {
			return nil, err
		}
		files = append(files, path)
	}
	return files, nil
}

func (o *realOptions) adaptersBeside(ctx context.Context, r *real.Report, name string, files []string, rounds int,
	near float64, add func(real.Check)) error {
	args := []string{"--parallel", strconv.Itoa(adapterStreams), "--ctx-size", "16384"}
	for i, f := range files {
		args = append(args, "--lora", fmt.Sprintf("adapter%d=%s", i, f))
	}
	return o.serve(append(args, o.threadArgs()...), func(p *daemonproc.Proc) error {
		ours := &real.Server{Name: "uma-serve", Socket: p.Socket}
		defer ours.Close()
		args := append([]string{"-c", "16384", "--parallel", strconv.Itoa(adapterStreams), "--kv-unified",
			"--lora-init-without-apply"}, o.threadArgs()...)
		for _, f := range files {
			args = append(args, "--lora", f)
		}
		theirs, err := real.StartLlamaServer(ctx, o.llamaServer, o.model, args...)
		if err != nil {
			return err
		}
		defer theirs.Stop()
		r.Ours, r.Theirs = ours.Build(ctx), theirs.Build(ctx)
		a := real.Adapters{Rounds: rounds, Scale: adapterScale, Measured: adapterRate}
		a.Compare = real.Compare{Ours: ours, Theirs: theirs.Server, Tokens: adapterTokens, Near: near,
			Concurrency: adapterStreams}
		add(a.Check(ctx, name, firstOf(real.Prompts(), o.first)))
		return nil
	})
}
