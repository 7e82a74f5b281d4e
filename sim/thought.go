package sim

import (
	"fmt"
	"math"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sim/thinking"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// thinkModel is the model and configuration that all thoughts of a server share.
type thinkModel struct {
	*thinking.Model
	cfg meridian.Config
}

// newThinkModel limits every think block to budget tokens, 0 = no limit. exit names the signals that may end one
// earlier, as --early-exit does.
func newThinkModel(budget int, exit string) (*thinkModel, error) {
	words, err := thinking.New()
	if err != nil {
		return nil, err
	}
	m := &thinkModel{Model: words, cfg: meridian.DefaultConfig()}
	m.cfg.MaxThinkTokens = math.MaxInt32
	if budget > 0 {
		m.cfg.MaxThinkTokens = budget
	}
	if exit != "" {
		if err := m.cfg.EarlyExit.UnmarshalText([]byte(exit)); err != nil {
			return nil, fmt.Errorf("early_exit = %w", err)
		}
	}
	m.cfg.EntropyEnabled = m.cfg.EarlyExit != meridian.ExitOff
	return m, nil
}

// thought is a simulated request's core.Thinking. The tokens of its history identify equal prompts and have no text. So
// it gives the real meridian.Control the tokens that a model would write: thinking for as long as the workload says,
// then the close tag.
type thought struct {
	model  *thinkModel
	spec   *workload.Request
	ctl    *meridian.Control // nil: it does not think, or no longer
	course thinking.Course
	next   runtime.Token // what the model writes, or is forced to
	n      int           // tokens so far
	saved  int           // thinking tokens that a forced close has saved
	ended  meridian.Ended
	most   int // rows a probe may have

	probes int // of spec.Probes: those taken
	asked  int // think tokens at the newest probe
	rows   []runtime.Token
}

func (t *thought) start() {
	if t.spec.Think <= 0 {
		return
	}
	t.course = thinking.NewCourse(t.spec.Identity().Own, t.spec.Think)
	// It begins inside the block, as with a template that opens it. The tags are in the vocabulary: it cannot fail.
	t.ctl, _ = meridian.NewControl(&t.model.cfg, t.model.Tags, t.model.cfg.Options(), meridian.Begin{Thinking: true})
}

// draw chooses the next token for the Control.
func (t *thought) draw(now int64) {
	t.n++
	if t.ctl == nil {
		return
	}
	written := t.ctl.ThinkTokens()
	if t.ctl.NeedStats() {
		row := t.course.Row(written)
		t.ctl.Observe(&row)
	}
	tok, forced := t.ctl.Next(now)
	if !forced {
		tok = t.model.Thought(written)
		if t.n >= t.spec.Think {
			tok = t.model.Close
		}
		tok, _ = t.ctl.Admit(tok, t.model.Vocab.Piece(tok), false, now)
	}
	t.next = tok
}

// output returns the number of tokens that the request generates. A forced close of its thought does not change the
// length of the answer.
func (t *thought) output() int { return max(1, t.spec.Output-t.saved) }

func (t *thought) Phase() meridian.Phase {
	if t.ctl == nil {
		return meridian.OutputDecode
	}
	return t.ctl.Phase()
}

func (t *thought) OnToken(_ core.Token, _ []byte, eog bool, now int64) meridian.Step {
	var s meridian.Step
	if t.ctl != nil {
		s = t.ctl.OnToken(t.next, t.model.Vocab.Piece(t.next), false, now)
		s.Think, s.Answer = nil, nil
		if t.ctl.Phase() == meridian.OutputDecode {
			t.ended, t.saved = t.ctl.Summary(now).Ended, max(0, t.spec.Think-t.n)
			t.ctl = nil
		}
	}
	if eog {
		s.Event |= meridian.Completed
	}
	return s
}

func (t *thought) Flush() (think, answer []byte) { return nil, nil }

func (t *thought) EndThink(now int64) bool { return t.ctl != nil && t.ctl.EndThink(now) }

// ProbeDue repeats the recorded forks, or else asks for those that phase control wants.
func (t *thought) ProbeDue() (tokens []runtime.Token, ok bool) {
	if t.ctl != nil && t.model.cfg.EntropyEnabled {
		if tokens, ok = t.ctl.ProbeDue(); len(tokens) > t.most {
			t.ctl.ProbeFailed()
			return nil, false
		}
		if ok {
			t.asked = t.ctl.ThinkTokens()
		}
		return tokens, ok
	}
	rows := 0
	for p := t.spec.Probes; t.probes < len(p) && p[t.probes].After <= t.n; t.probes++ {
		rows = min(p[t.probes].Rows, t.most)
	}
	if rows == 0 {
		return nil, false
	}
	for len(t.rows) < rows {
		t.rows = append(t.rows, t.model.Word())
	}
	return t.rows[:rows], true
}

// entropy returns that of the newest probe's row.
func (t *thought) entropy() float64 { return t.course.Probe(t.asked) }

func (t *thought) OnProbe(entropy float64) {
	if t.ctl != nil {
		t.ctl.OnProbe(entropy)
	}
}

func (t *thought) ProbeFailed() {
	if t.ctl != nil {
		t.ctl.ProbeFailed()
	}
}
