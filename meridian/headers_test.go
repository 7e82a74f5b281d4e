package meridian

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/runtime"
)

// TestHeadersOfFamilies: what ends a thought's message and begins the answer's is what a forced close writes.
func TestHeadersOfFamilies(t *testing.T) {
	n := 0
	for _, f := range tags.Families {
		if c := f.Channels; c != nil {
			n++
			if c.End[0]+c.Turn+c.Answer != f.Close[0] {
				t.Errorf("%s: %q + %q + %q is not %q", f.Name, c.End[0], c.Turn, c.Answer, f.Close[0])
			}
		}
	}
	if n < 2 {
		t.Errorf("%d families have headers", n)
	}
	v := bytesVocab([]string{"word "}, eog)
	if h := detectFor(t, v, harmonySign).Headers(); h != nil {
		t.Errorf("markers in text: %+v", h)
	}
	if h := (*Tags)(nil).Headers(); h != nil {
		t.Errorf("no tags: %+v", h)
	}
}

// headed is a turn whose headers a grammar holds.
type headed struct {
	t    *testing.T
	v    *testVocab
	tags *Tags
	c    *Control
	tr   transcript
}

func newHeaded(t *testing.T, edit func(*Options)) *headed {
	v := bytesVocab([]string{"word "}, append([]string{eog}, harmonyTokens...)...)
	h := &headed{t: t, v: v, tags: detectFor(t, v, harmonySign)}
	cfg := DefaultConfig()
	cfg.ForceGraceTokens = 0
	opt := cfg.Options()
	opt.Bound, opt.Headed, opt.Calls = true, true, true
	edit(&opt)
	var err error
	if h.c, err = NewControl(&cfg, h.tags, opt, h.tags.Begin("<|start|>assistant", false)); err != nil {
		t.Fatal(err)
	}
	return h
}

// say writes text as the model samples it, and reports how much of it came before a token was forced.
func (h *headed) say(text string) (rest string) {
	for text != "" {
		tok, forced := h.c.Next(0)
		if !forced {
			tok = h.v.next(text)
			var instead bool
			if tok, instead = h.c.Admit(tok, h.v.Piece(tok), h.v.Text(tok) == eog, 0); !instead {
				text = text[len(h.v.Text(tok)):]
			} else {
				forced = true
			}
		}
		h.tr.add(h.c.OnToken(tok, h.v.Piece(tok), h.v.Text(tok) == eog, 0))
		if forced {
			if h.v.Text(tok) != "<|end|>" {
				h.t.Errorf("%q was forced before %q", h.v.Text(tok), text)
			}
			return text
		}
	}
	return ""
}

// next is the token that text begins with.
func (v *testVocab) next(text string) runtime.Token {
	best := runtime.NoToken
	for id := range runtime.Token(v.Size()) {
		if s := v.Text(id); s != "" && strings.HasPrefix(text, s) && (best < 0 || len(s) > len(v.Text(best))) {
			best = id
		}
	}
	return best
}

// TestForcedCloseOfHeadedThought: a close ends the thought's message and no more; the header that follows ends the
// thought, for the reason of the close, and no message may think again.
func TestForcedCloseOfHeadedThought(t *testing.T) {
	const call = "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{}"
	for _, c := range []struct {
		name  string
		edit  func(*Options)
		say   string
		end   func(*Control)
		ended Ended
		think string
	}{
		{"budget", func(o *Options) { o.BudgetTokens = 2 }, "word word word word ", nil, EndedHardCap, "word word "},
		{"end of generation", func(*Options) {}, "word word " + eog, nil, EndedEOG, "word word "},
		{"request", func(*Options) {}, "word word ", func(c *Control) { c.EndThink(0) }, EndedUser, "word word "},
	} {
		h := newHeaded(t, c.edit)
		if !h.c.MayThink() || !h.c.InHeader() || h.c.InThought() {
			t.Errorf("%s: the beginning", c.name)
		}
		if h.say("<|channel|>analysis<|message|>") != "" || !h.c.InThought() || h.c.InHeader() {
			t.Errorf("%s: the thought has not begun", c.name)
		}
		rest := h.say(c.say)
		if c.end != nil {
			c.end(h.c)
			rest = h.say(strings.Repeat("word ", 20))
			if c.think = h.tr.think.String(); len(c.think) > 60 {
				t.Errorf("%s: thought %q", c.name, c.think)
			}
		}
		if c.end == nil && c.ended != EndedEOG && rest == "" || h.c.InThought() || !h.c.InHeader() || h.c.MayThink() {
			t.Errorf("%s: after the close: %q, in thought %v, in header %v, may think %v", c.name, rest,
				h.c.InThought(), h.c.InHeader(), h.c.MayThink())
		}
		if rest := h.say(call); rest != "" {
			t.Errorf("%s: something was forced before %q", c.name, rest)
		}
		s := h.c.Summary(0)
		if h.c.Phase() != OutputDecode || s.Ended != c.ended || h.tr.think.String() != c.think ||
			h.c.LastForce().Reason == NoReason || !strings.Contains(h.tr.answer.String(), "to=functions.f") {
			t.Errorf("%s: %v, %+v, thought %q, answer %q, force %+v", c.name, h.c.Phase(), s, h.tr.think.String(),
				h.tr.answer.String(), h.c.LastForce())
		}
	}
}

// TestHeadedThoughtMayGoOn: without a close, the model may think in several messages, and ends its thought itself.
func TestHeadedThoughtMayGoOn(t *testing.T) {
	h := newHeaded(t, func(*Options) {})
	h.say("<|channel|>analysis<|message|>word <|end|>")
	if !h.c.MayThink() || h.c.InThought() {
		t.Errorf("between two thoughts: may think %v, in thought %v", h.c.MayThink(), h.c.InThought())
	}
	// A marker that ends no header is no text and ends nothing.
	h.say("<|start|>assistant<|channel|>analysis<|message|>word <|message|>word <|end|>")
	h.say("<|start|>assistant<|channel|>final<|message|>word ")
	if s := h.c.Summary(0); s.Ended != EndedNatural || s.Tokens != 3 || h.tr.think.String() != "word word word " ||
		h.tr.answer.String() != "word " {
		t.Errorf("%+v, thought %q, answer %q", s, h.tr.think.String(), h.tr.answer.String())
	}
}

// TestForcedCloseBeforeCalls: where a forced close begins the answer's section of text, it does not before a call.
func TestForcedCloseBeforeCalls(t *testing.T) {
	v := bytesVocab([]string{"word "}, eog, "<|open|>", "<|close|>", "<|sep|>")
	tags := detectFor(t, v, "<|open|><|close|><|sep|>")
	for _, c := range []struct {
		calls bool
		want  string
	}{{true, "<|close|>think<|sep|>"}, {false, "<|close|>think<|sep|><|open|>response<|sep|>"}} {
		cfg := DefaultConfig()
		opt := cfg.Options()
		opt.Bound, opt.CallsOnly, opt.BudgetTokens = true, c.calls, 1
		ctl, err := NewControl(&cfg, tags, opt, Begin{Thinking: true})
		if err != nil {
			t.Fatal(err)
		}
		word, text := v.Find("word "), ""
		ctl.OnToken(word, v.Piece(word), false, 0)
		for tok, forced := ctl.Next(0); forced; tok, forced = ctl.Next(0) {
			text += v.Text(tok)
			ctl.OnToken(tok, v.Piece(tok), false, 0)
		}
		if text != c.want || ctl.Phase() != OutputDecode || ctl.Summary(0).Ended != EndedHardCap {
			t.Errorf("calls %v: %q was forced; %v, %+v", c.calls, text, ctl.Phase(), ctl.Summary(0))
		}
	}
}

// follow writes text as the model samples it, forced tokens before it and within it, and returns the forced ones.
func (h *headed) follow(text string) (forced string) {
	for range 1000 {
		tok, must := h.c.Next(0)
		if !must {
			if text == "" {
				return forced
			}
			tok = h.v.next(text)
			if tok, must = h.c.Admit(tok, h.v.Piece(tok), h.v.Text(tok) == eog, 0); !must {
				text = text[len(h.v.Text(tok)):]
			}
		}
		if must {
			forced += h.v.Text(tok)
			if strings.HasPrefix(text, eog) {
				text = "" // the turn has not ended
			}
		}
		h.tr.add(h.c.OnToken(tok, h.v.Piece(tok), h.v.Text(tok) == eog, 0))
	}
	h.t.Fatal("it forces tokens without end")
	return forced
}

// TestCloseLeavesTheHeader: with tools, a forced close ends the thought's message and begins the next one. The model
// chooses between answer and call; another thought, or the turn's end, becomes the answer's header.
func TestCloseLeavesTheHeader(t *testing.T) {
	const (
		next   = "<|end|><|start|>assistant"
		answer = "<|channel|>final<|message|>"
		think  = "<|channel|>analysis<|message|>"
		call   = "<|channel|>commentary to=functions.f<|message|>{}"
	)
	for _, c := range []struct {
		name, then    string
		forced        string // by what follows the close
		answer, think string
	}{
		{"a call", call, "", "to=functions.f", "word word "},
		{"a call, the other header", " to=functions.f<|channel|>commentary<|message|>{}", "", "to=functions.f",
			"word word "},
		{"an answer", answer + "word ", "", "word ", "word word "},
		{"a thought", think + "word word ", next + answer, "word word ", "word word "},
		{"the end of the turn", eog, next + answer, "", "word word "},
		{"its end within the header", "<|channel|>" + eog, next + answer, "", "word word "},
		{"another header", "<|start|>assistant" + answer + "word ", "", "word ", "word word "},
	} {
		h := newHeaded(t, func(o *Options) { o.Bound, o.Headed, o.BudgetTokens = false, false, 2 })
		if forced := h.follow(think + "word word "); forced != next {
			t.Errorf("%s: the close is %q", c.name, forced)
		}
		if h.c.Phase() != ThinkDecode || h.c.InThought() || !h.c.InHeader() {
			t.Errorf("%s: after the close: %v", c.name, h.c.Phase())
		}
		if forced := h.follow(c.then); forced != c.forced {
			t.Errorf("%s: %q is forced, want %q", c.name, forced, c.forced)
		}
		if s := h.c.Summary(0); h.c.Phase() != OutputDecode || s.Ended != EndedHardCap || s.Tokens != 2 ||
			h.c.LastForce().Reason != HardCap || h.tr.think.String() != c.think ||
			!strings.Contains(h.tr.answer.String(), c.answer) {
			t.Errorf("%s: %v, %+v, thought %q, answer %q", c.name, h.c.Phase(), s, h.tr.think.String(),
				h.tr.answer.String())
		}
	}
	// What begins with a cue, and what has no tools, is an answer.
	for name, edit := range map[string]func(*Options){
		"a cue":    func(o *Options) { o.AnswerCue = "word " },
		"no tools": func(o *Options) { o.Calls = false },
	} {
		h := newHeaded(t, func(o *Options) {
			o.Bound, o.Headed, o.BudgetTokens = false, false, 2
			edit(o)
		})
		if forced := h.follow(think + "word word "); !strings.HasPrefix(forced, next+answer) {
			t.Errorf("%s: the close is %q", name, forced)
		}
	}
}
