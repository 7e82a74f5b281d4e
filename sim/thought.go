package sim

import (
	"math"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// thinkModel has the tokens that the simulated model writes: tokens of the fake engine's vocabulary.
type thinkModel struct {
	cfg         meridian.Config
	tags        *meridian.Tags
	close, word runtime.Token
}

// newThinkModel limits every think block to budget tokens; 0 = no limit.
func newThinkModel(budget int) (*thinkModel, error) {
	v := fake.New(fake.Config{}).Vocab()
	m := &thinkModel{cfg: meridian.DefaultConfig()}
	m.cfg.MaxThinkTokens = math.MaxInt32
	if budget > 0 {
		m.cfg.MaxThinkTokens = budget
	}
	m.cfg.EntropyEnabled = false
	var err error
	if m.tags, err = meridian.Detect(v, meridian.Markers{}, v.ChatTemplate()); err != nil {
		return nil, err
	}
	marks := m.tags.Markers()
	m.close, m.word = v.Find(marks.Close[0]), v.Find("w")
	return m, nil
}

// thought is a simulated request's core.Thinking. The tokens of its history identify equal prompts and have no text. So
// it gives the real meridian.Control the tokens that a model would write: thinking for as long as the workload says,
// then the close tag.
type thought struct {
	model *thinkModel
	spec  *workload.Request
	ctl   *meridian.Control // nil: it does not think, or no longer
	next  runtime.Token     // what the model writes, or is forced to
	n     int               // tokens so far
	most  int               // rows a probe may have

	probes int // of spec.Probes: those taken
	rows   []runtime.Token
}

func (t *thought) start() {
	if t.spec.Think <= 0 {
		return
	}
	// It begins inside the block, as with a template that opens it. The tags are in the vocabulary: it cannot fail.
	t.ctl, _ = meridian.NewControl(&t.model.cfg, t.model.tags, t.model.cfg.Options(), meridian.Begin{Thinking: true})
}

// draw chooses the next token for the Control.
func (t *thought) draw(now int64) (natural bool) {
	t.n++
	if t.ctl == nil {
		return true
	}
	tok, forced := t.ctl.Next(now)
	if !forced {
		tok = t.model.word
		if t.n >= t.spec.Think {
			tok = t.model.close
		}
		tok, _ = t.ctl.Admit(tok, nil, false, now)
	}
	t.next = tok
	return true
}

func (t *thought) Phase() meridian.Phase {
	if t.ctl == nil {
		return meridian.OutputDecode
	}
	return t.ctl.Phase()
}

func (t *thought) OnToken(_ core.Token, _ []byte, eog bool, now int64) meridian.Step {
	var s meridian.Step
	if t.ctl != nil {
		s = t.ctl.OnToken(t.next, nil, false, now)
		s.Think, s.Answer = nil, nil
		if t.ctl.Phase() == meridian.OutputDecode {
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

// ProbeDue repeats the recorded forks.
func (t *thought) ProbeDue() (tokens []runtime.Token, ok bool) {
	rows := 0
	for p := t.spec.Probes; t.probes < len(p) && p[t.probes].After <= t.n; t.probes++ {
		rows = min(p[t.probes].Rows, t.most)
	}
	if rows == 0 {
		return nil, false
	}
	for len(t.rows) < rows {
		t.rows = append(t.rows, t.model.word)
	}
	return t.rows[:rows], true
}

func (t *thought) OnProbe(float64) {}
func (t *thought) ProbeFailed()    {}
