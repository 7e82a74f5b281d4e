package drafts

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// Model is an open draft model or head. The decode loop owns it once it runs, except for what Info reads. The methods
// of a nil Model do nothing.
type Model struct {
	eng    runtime.Engine
	argmax runtime.RowScanner // eng, if it finds a row's largest logit faster than Go does; else nil
	set    runtime.ThreadSetter
	log    *slog.Logger
	path   string
	shared int // tokens that both vocabularies have
	cost   float64
	tokens []core.Token // scratch
	failed atomic.Bool
	headOf
}

func newModel(eng runtime.Engine, path string, log *slog.Logger) *Model {
	m := &Model{eng: eng, log: log, path: path}
	m.argmax, _ = eng.(runtime.RowScanner)
	m.set, _ = eng.(runtime.ThreadSetter)
	return m
}

// Open opens the draft model of --draft-model.
func Open(open func(runtime.Options) (runtime.Engine, error), o runtime.Options, log *slog.Logger) (*Model, error) {
	eng, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("--draft-model: load %s: %w", o.ModelPath, err)
	}
	if eng.Model().Encoder || eng.Capabilities().Seals {
		eng.Close()
		return nil, fmt.Errorf("--draft-model: %s (%s) cannot be a draft model: its memory cannot remove single "+
			"cells, which rejected drafts need", o.ModelPath, eng.Model().Architecture)
	}
	return newModel(eng, o.ModelPath, log), nil
}

// Fit checks that m can draft for the model of eng, whose file is path.
func (m *Model) Fit(eng runtime.Engine, path string) error {
	m.cost = relativeCost(m.eng, eng)
	return m.sameVocab(eng, path)
}

// sameVocab sets the number of shared tokens.
func (m *Model) sameVocab(eng runtime.Engine, path string) (err error) {
	if m.shared, err = runtime.SameVocab(eng.Vocab(), m.eng.Vocab(), path, m.path); err != nil {
		return fmt.Errorf("--draft-model: %s cannot draft tokens for %s, as their vocabularies differ: %w", m.path,
			path, err)
	}
	return nil
}

// relativeCost returns the assumed cost of a step of draft relative to one of eng: that of the weights which it reads.
func relativeCost(draft, eng runtime.Engine) float64 {
	of := eng.Model().Bytes
	if of == 0 {
		return 0.25
	}
	return min(max(float64(draft.Model().Bytes)/float64(of), 1e-3), 10)
}

// Core returns the core's configuration of the draft model.
func (m *Model) Core() core.DraftConfig {
	if m == nil {
		return core.DraftConfig{}
	}
	c := m.eng.Capabilities()
	d := core.DraftConfig{Sequences: c.MaxSequences, Cells: c.ContextTokens, Batch: c.MaxBatch, Tokens: m.shared,
		Cost: m.cost, States: m.states}
	if m.head != nil {
		d.Block, d.Shared = m.head.Block(), m.head.Shared()
	}
	return d
}

// Guess carries out the draft model's part of the newest step.
func (m *Model) Guess(c *core.Core) {
	if m == nil {
		return
	}
	for c.FillDraft(m.eng.Batch()) {
		begin := time.Now()
		m.follow(c)
		if err := m.eng.Decode(); errors.Is(err, runtime.ErrKVFull) && m.head != nil && m.head.Shared() {
			c.Drafted(time.Since(begin), nil) // there is none to be had before the model's own Decode frees some
			return
		} else if err != nil {
			c.DraftFailed()
			m.failed.Store(true)
			m.log.Error("the draft model failed and is not used any more", "file", m.path, "head", m.head != nil,
				"error", err)
			return
		}
		m.tokens = m.tokens[:0]
		for i, bits := range m.eng.Batch().Logits {
			if bits != 0 {
				m.tokens = append(m.tokens, m.best(i))
			}
		}
		c.Drafted(time.Since(begin), m.tokens)
	}
}

// best returns the token with the largest logit of a row.
func (m *Model) best(row int) core.Token {
	if m.argmax == nil {
		best, _ := sampler.Argmax(m.eng.Logits(row))
		return best
	}
	best, _ := m.argmax.Argmax(row)
	return best
}

// Remove carries out a core.DraftRemove. It panics where the memory cannot, although it says that it can.
func (m *Model) Remove(op *core.Op) {
	if !m.eng.SeqRemove(op.Dst, runtime.Pos(op.From), runtime.Pos(op.To)) {
		panic(fmt.Sprintf("daemon: the draft model cannot drop positions %d…%d of sequence %d, and reports that it can",
			op.From, op.To, op.Dst))
	}
}

// SetThreads has m use as many compute threads as the model.
func (m *Model) SetThreads(n int) {
	if m != nil && m.set != nil {
		m.set.SetThreads(n)
	}
}

// Close frees the draft model; a head before its model's engine.
func (m *Model) Close() {
	if m != nil {
		m.eng.Close()
	}
}

// Bytes returns the memory of m in bytes: weights that are not the model's, their repacked copy and KV cells.
func (m *Model) Bytes() int64 {
	if m == nil {
		return 0
	}
	in := m.eng.Model()
	return int64(in.Bytes-in.SharedBytes+in.RepackedBytes) +
		int64(in.KVBytesPerToken)*int64(m.eng.Capabilities().ContextTokens)
}

// Placed returns the memory of the draft model on each device; nil for a head of the model's file, which lies with it.
func (m *Model) Placed() []runtime.DeviceMemory {
	if m == nil || m.head != nil && !m.file {
		return nil
	}
	return m.eng.Capabilities().Placed
}

// Info returns the draft model's part of the info report; nil without one.
func (m *Model) Info() *reports.InfoDraft {
	if m == nil {
		return nil
	}
	kind := "model"
	switch {
	case m.file:
		kind = m.eng.Model().Architecture
	case m.head != nil:
		kind = "head"
	}
	in, c := m.eng.Model(), m.eng.Capabilities()
	if m.head != nil && m.head.Shared() {
		c.ContextTokens = 0 // it reads the model's
	}
	return &reports.InfoDraft{Kind: kind, Name: in.Name, Path: in.Path, Description: in.Description,
		ContextTokens: c.ContextTokens, Sequences: c.MaxSequences, Bytes: m.Bytes(), Failed: m.failed.Load()}
}

// Log logs what makes drafts, and, if none are made, why.
func (m *Model) Log(none string) {
	switch {
	case m == nil:
	case none != "":
		m.log.Warn("the draft model is of no use", "file", m.path, "reason", none)
	default:
		what := "draft model"
		switch {
		case m.file:
			what = "the head of a file drafts"
		case m.head != nil:
			what = "the head of the model's file drafts"
		}
		m.log.Info(what, "file", m.path, "n_ctx", m.eng.Capabilities().ContextTokens, "weights",
			fmt.Sprintf("%.2f of the model's", m.cost))
	}
}
