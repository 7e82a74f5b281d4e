package daemon

import (
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// What is taken out of the middle of a running sequence: the oldest part of a full context (--context-shift), and
// finished thoughts when cells run out (--think-evict=drop). Both change what the model attends to, so both are off
// by default. Cells that others share are left alone: only what lies behind them is cut.

// shorten takes tokens out of r's history if it is time to, and returns how many.
func (l *loop) shorten(r *request) int {
	switch {
	case l.cfg.ContextShift && l.caps.CanShift && len(r.tokens) >= l.caps.ContextTokens:
		from := max(r.keep, r.computed-r.own) // behind what is shared
		n := (len(r.tokens) - from) / 2
		if n < 1 || !l.cutTokens(r, from, n) {
			return 0 // the scheduler ends it: there is no cell left for its next token
		}
		l.m.ContextShift.Inc()
		l.log.Debug("context shift", "request", r.wireID, "forgotten", n, "kept", from)
		return n
	case l.cfg.ThinkEvict == "drop" && r.thinkTo > 0 && l.caps.CanShift && l.pressed():
		from := max(r.thinkFrom, r.computed-r.own)
		n := min(r.thinkTo, r.computed) - from
		r.thinkTo = 0 // once
		if n < 1 || !l.cutTokens(r, from, n) {
			return 0
		}
		l.log.Debug("thought dropped", "request", r.wireID, "tokens", n)
		return n
	}
	return 0
}

// cutTokens removes n computed tokens of r's history from index from on; false when others share some of the cells.
func (l *loop) cutTokens(r *request, from, n int) bool {
	if from+n > r.computed || n > r.own {
		return false
	}
	before := append(make([]runtime.Token, 0, n), r.tokens[from:from+n]...)
	tail := len(r.tokens)
	copy(r.tokens[from:], r.tokens[from+n:])
	r.tokens = r.tokens[:tail-n]
	ended, err := l.tree.Cut(r.seq, r.tokens, from, n)
	if err != nil {
		r.tokens = r.tokens[:tail]
		copy(r.tokens[from+n:], r.tokens[from:tail-n])
		copy(r.tokens[from:], before)
		l.log.Debug("the history cannot be cut", "request", r.wireID, "error", err)
		return false
	}
	l.ended(ended)
	r.computed -= n
	r.own -= n
	l.own -= n
	r.cut += n
	r.chat = false // what is left is no conversation whose next turn could begin with it
	for left, tiers := n, [...]meridian.Tier{meridian.ThinkComplete, meridian.Prefix, meridian.OutputCritical, meridian.ThinkActive}; left > 0; {
		took := 0
		for _, t := range tiers {
			if k := min(left-took, l.blocks.CellsOf(meridian.Owner(r.id), t)); k > 0 && l.blocks.OnCells(meridian.Owner(r.id), t, -k) {
				took += k
			}
		}
		if left -= took; took == 0 {
			break
		}
	}
	return true
}

// pressed reports whether cells are about to run out: fewer than an eighth of the pool could be had.
func (l *loop) pressed() bool {
	c := l.tree.Cells()
	return c.Free+c.Cached < l.caps.ContextTokens/8
}

// thoughtEnded is told that r's think block is closed. Under --think-evict=offload its cells are copied to the stores
// then, and stay in the pool too: should r make way for others later, it comes back without computing them again. An
// interactive request's are copied only while cells run low.
func (l *loop) thoughtEnded(r *request) {
	if l.cfg.ThinkEvict != "offload" || r.class == sched.Interactive && !l.pressed() {
		return
	}
	l.store.copySoon(r)
}

// copySoon copies a running request's cells out, a part a step.
func (s *store) copySoon(r *request) {
	if s.cache != nil {
		s.running = append(s.running, r)
	}
}

// copyRunning copies some of a running request. What was cut is no prefix of anybody's any more: its cells were
// computed with others before them than its tokens say.
func (s *store) copyRunning() {
	r := s.running[0]
	if r.seq < 0 || r.finished || r.cut > 0 || !s.copyOut(r.owner, r.tokens, r.seq, r.computed, s.left) {
		s.running = s.running[1:]
	}
}
