package sched

import (
	"time"

	"github.com/uma-serve/uma-serve/sched/reason"
)

// stock does what llama-server does, as the baseline of comparisons.
//
// Rule: first come, first served. Every running answer gets one token, then prompts fill the batch up to
// Config.MaxBatch in the order in which they started. There are no classes, owners, phases, time budget or guard. Like
// llama-server's, the step of a prompt alone is not bounded in time. Only the bounded queue is shared by owner, as
// under every policy.
//
// It optimises: prompt throughput. Each weight is read once for as many tokens as the engine takes.
// It gives up: every time bound. While prompts wait, each token of a running answer takes as long as a full batch:
// seconds on a CPU. Do not use it when people read answers while other clients send prompts.
//
// Bounds: an answer gets a token every ⌈answers/MaxBatch⌉ steps. A prompt gets tokens whenever those before it leave
// room in the batch: when as many answers run as the batch has rows, it waits for one to end.
type stock struct {
	maxBatch int
	dec, pre []*request // scratch
}

func newStock(cfg *Config) *stock {
	return &stock{
		maxBatch: cfg.MaxBatch,
		dec:      make([]*request, 0, cfg.MaxRunning),
		pre:      make([]*request, 0, cfg.MaxRunning),
	}
}

func (p *stock) lane(Class, uint32) (Class, uint32) { return Interactive, 0 }

func (p *stock) fill(b *batcher) {
	p.dec, p.pre = b.split(p.dec[:0], p.pre[:0])
	b.decodeAll(p.dec, p.maxBatch, reason.Decode)
	for _, r := range p.pre {
		b.prefill(r, p.maxBatch, reason.PrefillBatch)
	}
	b.s.plan.Reason = b.whyNotMore()
}

func (p *stock) observe(*Plan, time.Duration) {}

func (p *stock) targets() (shared, solo int) { return p.maxBatch, p.maxBatch }
