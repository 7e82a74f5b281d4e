package daemon

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// The draft model (--draft-model): a second engine in the process that guesses the next tokens of answers. In each
// step, package sched decides which guesses it computes, and package core keeps its sequences; here it is opened,
// checked and run.

// draftModel is an open draft model. The decode loop owns it once it runs, except for the fields that info reads.
type draftModel struct {
	eng    runtime.Engine
	argmax runtime.RowScanner // eng, if it finds a row's largest logit faster than Go does; else nil
	set    runtime.ThreadSetter
	log    *slog.Logger
	path   string
	shared int // tokens that both vocabularies have
	cost   float64
	tokens []core.Token // scratch
	failed atomic.Bool
}

// openDraft opens the draft model, nil without one or where it is of no use.
func (s *Server) openDraft(cfg *config.Config, open Opener, quit *atomic.Bool) (*draftModel, error) {
	path := s.cfg.DraftModel
	if path == "" {
		return nil, nil
	}
	if why := s.cfg.NoDraft(); why != "" {
		s.log.Warn("the draft model is not loaded", "file", path, "reason", why)
		return nil, nil
	}
	o := draftOptions(cfg)
	o.Progress = func(float32) bool { return !quit.Load() }
	eng, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("--draft-model: load %s: %w", path, err)
	}
	d := &draftModel{eng: eng, log: s.log, path: path}
	d.argmax, _ = eng.(runtime.RowScanner)
	d.set, _ = eng.(runtime.ThreadSetter)
	if eng.Model().Encoder || eng.Capabilities().Seals {
		eng.Close()
		return nil, fmt.Errorf("--draft-model: %s (%s) cannot be a draft model: its memory cannot remove single "+
			"cells, which rejected drafts need", path, eng.Model().Architecture)
	}
	return d, nil
}

// fit checks that d can draft for the model of eng, whose file is path.
func (d *draftModel) fit(eng runtime.Engine, path string) error {
	n, err := runtime.SameVocab(eng.Vocab(), d.eng.Vocab(), path, d.path)
	if err != nil {
		return fmt.Errorf("--draft-model: %s cannot draft tokens for %s, as their vocabularies differ: %w", d.path,
			path, err)
	}
	d.shared, d.cost = n, 0.25
	if of := eng.Model().Bytes; of > 0 {
		d.cost = min(max(float64(d.eng.Model().Bytes)/float64(of), 1e-3), 10)
	}
	return nil
}

// core returns the core's configuration of the draft model.
func (d *draftModel) core() core.DraftConfig {
	if d == nil {
		return core.DraftConfig{}
	}
	c := d.eng.Capabilities()
	return core.DraftConfig{Sequences: c.MaxSequences, Cells: c.ContextTokens, Batch: c.MaxBatch, Tokens: d.shared,
		Cost: d.cost}
}

// guess carries out the draft model's part of the newest step.
func (d *draftModel) guess(c *core.Core) {
	if d == nil {
		return
	}
	for c.FillDraft(d.eng.Batch()) {
		begin := time.Now()
		if err := d.eng.Decode(); err != nil {
			c.DraftFailed()
			d.failed.Store(true)
			d.log.Error("the draft model failed and is not used any more", "file", d.path, "error", err)
			return
		}
		d.tokens = d.tokens[:0]
		for i, bits := range d.eng.Batch().Logits {
			if bits != 0 {
				d.tokens = append(d.tokens, d.best(i))
			}
		}
		c.Drafted(time.Since(begin), d.tokens)
	}
}

// best returns the token with the largest logit of a row.
func (d *draftModel) best(row int) core.Token {
	if d.argmax == nil {
		best, _ := sampler.Argmax(d.eng.Logits(row))
		return best
	}
	best, _ := d.argmax.Argmax(row)
	return best
}

// setThreads has d use as many compute threads as the model.
func (d *draftModel) setThreads(n int) {
	if d != nil && d.set != nil {
		d.set.SetThreads(n)
	}
}

func (d *draftModel) close() {
	if d != nil {
		d.eng.Close()
	}
}

// bytes returns the memory of d in bytes: weights, their repacked copy and KV cells.
func (d *draftModel) bytes() int64 {
	if d == nil {
		return 0
	}
	m := d.eng.Model()
	return int64(m.Bytes+m.RepackedBytes) + int64(m.KVBytesPerToken)*int64(d.eng.Capabilities().ContextTokens)
}

// info returns the draft model's part of the info report; nil without one.
func (d *draftModel) info() *wire.InfoDraft {
	if d == nil {
		return nil
	}
	m, c := d.eng.Model(), d.eng.Capabilities()
	return &wire.InfoDraft{Name: m.Name, Path: m.Path, Description: m.Description, ContextTokens: c.ContextTokens,
		Sequences: c.MaxSequences, Bytes: d.bytes(), Failed: d.failed.Load()}
}

// logDraft logs the draft model, and why it makes no guesses if it does not.
func (s *Server) logDraft(m *prepare.Model) {
	if s.draft == nil {
		return
	}
	if why := m.NoSpeculation(); why != "" {
		s.log.Warn("the draft model is of no use", "file", s.draft.path, "reason", why)
		return
	}
	s.log.Info("draft model", "file", s.draft.path, "n_ctx", s.draft.eng.Capabilities().ContextTokens, "weights",
		fmt.Sprintf("%.2f of the model's", s.draft.cost))
}
