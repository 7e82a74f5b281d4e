package sched

import "time"

// stock is what llama-server does, as the baseline that others are measured against.
//
// Rule: first come, first served. Every running answer gets one token, then prompts fill the batch up to
// Config.MaxBatch in the order they were let in. No classes, no owners, no phases, no time budget, no guard: a lone
// prompt's step is not bounded in time either, because llama-server's is not. Only the bounded queue is shared by
// owner, as under every policy.
//
// It optimises: prompt throughput. Each weight is read once for as many tokens as the engine takes.
// It gives up: everything that is promised in milliseconds. While prompts wait, each token of a running answer
// takes as long as a full batch, seconds on a CPU.
// Do not use it when people read answers while others send prompts.
//
// Bounds: an answer gets a token every ⌈answers/MaxBatch⌉ steps. A prompt gets tokens whenever those before it
// leave room in the batch: when as many answers run as the batch has rows, it waits for one to end.
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

func (p *stock) fill(b *builder) {
	p.dec, p.pre = b.split(p.dec[:0], p.pre[:0])
	b.decodeAll(p.dec, p.maxBatch, ReasonDecode)
	for _, r := range p.pre {
		b.prefill(r, p.maxBatch, ReasonPrefillBatch)
	}
	b.s.plan.Reason = b.whyNotMore()
}

func (p *stock) observe(*Plan, time.Duration) {}

func (p *stock) targets() (shared, solo int) { return p.maxBatch, p.maxBatch }
