package wire

import (
	"fmt"
	"strings"

	"github.com/valyala/fastjson"
)

// ThinkMode selects whether a request thinks.
type ThinkMode uint8

const (
	ThinkDefault ThinkMode = iota // the server's
	ThinkAuto                     // as the model decides
	ThinkOff                      // not at all
	ThinkOn                       // also where the model would not
)

// EarlyExit selects the signals that may end thinking before its budget.
type EarlyExit uint8

const (
	ExitDefault EarlyExit = iota // the server's
	ExitOff
	ExitEAT
	ExitRPDI
	ExitBoth
)

// Preserve selects what becomes of the thoughts of earlier turns when the chat template renders them.
type Preserve uint8

const (
	PreserveDefault Preserve = iota // as the template decides
	PreserveOff                     // left out
	PreserveOn                      // kept
)

// Effort is OpenAI's reasoning_effort: a budget as a share of the tokens the request may generate at all.
type Effort uint8

const (
	EffortDefault Effort = iota
	EffortMinimal
	EffortLow
	EffortMedium
	EffortHigh
	EffortXHigh
	EffortMax
)

var (
	thinkModes   = []string{"", "auto", "off", "on"}
	earlyExits   = []string{"", "off", "eat", "rpdi", "both"}
	efforts      = []string{"", "minimal", "low", "medium", "high", "xhigh", "max"}
	effortShares = [...]int{0, 10, 20, 50, 80, 95, 98} // percent
)

// String returns the word of the protocol, "" for the server's.
func (m ThinkMode) String() string { return thinkModes[m] }

// String returns the word of the protocol, "" for the server's.
func (e EarlyExit) String() string { return earlyExits[e] }

// String returns the word of the protocol, "" for none.
func (e Effort) String() string { return efforts[e] }

// UnmarshalText reads a word of the protocol; an unknown one is an error that lists them.
func (m *ThinkMode) UnmarshalText(b []byte) error { return wordOf((*uint8)(m), b, thinkModes) }

// UnmarshalText reads a word of the protocol; an unknown one is an error that lists them.
func (e *EarlyExit) UnmarshalText(b []byte) error { return wordOf((*uint8)(e), b, earlyExits) }

// UnmarshalText reads a word of the protocol; an unknown one is an error that lists them.
func (e *Effort) UnmarshalText(b []byte) error { return wordOf((*uint8)(e), b, efforts) }

func wordOf(dst *uint8, b []byte, words []string) error {
	for i, w := range words[1:] {
		if w == string(b) {
			*dst = uint8(i + 1)
			return nil
		}
	}
	return fmt.Errorf("%s is none of %s", quoted(b), strings.Join(words[1:], ", "))
}

// Think holds the thinking options of a request. The zero value has the defaults of the server.
type Think struct {
	Mode ThinkMode
	// BudgetTokens is the most tokens of thought; 0 = not named. (A client's 0 is ThinkOff.)
	// Invariant: at most one of BudgetTokens and Effort is set, and none with ThinkOff.
	BudgetTokens int
	Effort       Effort
	// SoftBudgetTokens: from there on thinking ends as soon as the model is about to end it; 0 = the server's, -1 =
	// none.
	SoftBudgetTokens int
	EarlyExit        EarlyExit
	AnswerCue        string // text that begins the answer after a forced end of thinking, "" = none
	Preserve         Preserve
}

// MaxAnswerCueBytes bounds think.answer_cue.
const MaxAnswerCueBytes = 256

// NoBudget is the result of Budget and SoftBudget if the request names none.
const NoBudget = -1

// Budget returns the most tokens of thought that a request asks for if it may generate maxTokens in all: 0 = none,
// NoBudget = not named.
func (t *Think) Budget(maxTokens int) int {
	switch {
	case t.Mode == ThinkOff:
		return 0
	case t.BudgetTokens > 0:
		return t.BudgetTokens
	case t.Effort != EffortDefault:
		return max(maxTokens*effortShares[t.Effort]/100, 1)
	}
	return NoBudget
}

// SoftBudget returns the number of tokens of thought from which on the request wants it ended softly: 0 = never,
// NoBudget = not named.
func (t *Think) SoftBudget() int {
	switch {
	case t.SoftBudgetTokens < 0:
		return 0
	case t.SoftBudgetTokens == 0:
		return NoBudget
	}
	return t.SoftBudgetTokens
}

// thinkSpoken has the names of the fields that have set the mode and the budget of a request's thinking, for the error
// about a field that disagrees; "" = none yet.
type thinkSpoken struct{ mode, budget, preserve string }

// thinkFields are the fields about thinking: our own object and the spellings of other servers.
var thinkFields = []field{
	{name: "think", read: readThink},
	{name: "reasoning_effort", read: (*decoder).effort},
	{name: "reasoning_budget_tokens", read: (*decoder).budget},
	{name: "reasoning_budget", read: (*decoder).budget},
	{name: "thinking_budget_tokens", read: (*decoder).budget},
	{name: "thinking_token_budget", read: (*decoder).budget},
	{name: "enable_thinking", read: (*decoder).enable},
	{name: "thinking", read: readThinking},
	{name: "preserve_thinking", read: (*decoder).preserve},
}

// readThinking reads Anthropic's object, which DeepSeek and GLM take, too, and SGLang's word for it.
func readThinking(d *decoder, name string, v *fastjson.Value) error {
	switch v.Type() {
	case fastjson.TypeTrue, fastjson.TypeFalse:
		return d.enable(name, v)
	case fastjson.TypeString:
		return d.templateMode(name, v)
	}
	return d.members(name, v, "an object with type", func(field, key string, v *fastjson.Value) error {
		switch key {
		case "type":
			return d.templateMode(field, v)
		case "budget_tokens":
			return d.budget(field, v)
		case "clear_thinking":
			return d.clear(field, v)
		}
		return nil
	})
}

// strayThink refuses an unknown field whose name looks like a thinking option: if it were ignored, thinking would
// differ from the client's intention.
func strayThink(key []byte) error {
	s := strings.ToLower(string(key))
	if !strings.Contains(s, "think") && !strings.HasPrefix(s, "reason") {
		return nil
	}
	return fmt.Errorf(`field %s is not known; thinking is asked for with "think": {"mode", "budget_tokens", `+
		`"soft_budget_tokens", "early_exit", "answer_cue", "preserve"}`, quoted(key))
}

func (d *decoder) setMode(name string, m ThinkMode) error {
	if d.think.mode != "" && d.req.Think.Mode != m {
		return fmt.Errorf("field %q says thinking is %s, field %q says %s; send one of them", name, m, d.think.mode,
			d.req.Think.Mode)
	}
	d.req.Think.Mode, d.think.mode = m, name
	return nil
}

func (d *decoder) setBudget(name string, tokens int, e Effort) error {
	t := &d.req.Think
	if d.think.budget != "" && (t.BudgetTokens != tokens || t.Effort != e) {
		return fmt.Errorf("fields %q and %q name different thinking budgets; send one of them", d.think.budget, name)
	}
	t.BudgetTokens, t.Effort, d.think.budget = tokens, e, name
	return nil
}

// budget reads a number of tokens: 0 turns thinking off, -1 leaves it to the server.
func (d *decoder) budget(name string, v *fastjson.Value) error {
	n, err := d.integer(name, v, -1, MaxTokensLimit)
	switch {
	case err != nil || n < 0:
		return err
	case n == 0:
		return d.setMode(name, ThinkOff)
	}
	return d.setBudget(name, int(n), EffortDefault)
}

func (d *decoder) enable(name string, v *fastjson.Value) error {
	on := false
	if err := d.boolean(name, v, &on); err != nil {
		return err
	}
	if on {
		return d.setMode(name, ThinkOn)
	}
	return d.setMode(name, ThinkOff)
}

// preserve reads whether thoughts of earlier turns are kept; clear is the same, the other way round.
func (d *decoder) preserve(name string, v *fastjson.Value) error {
	return d.setPreserve(name, v, PreserveOn)
}
func (d *decoder) clear(name string, v *fastjson.Value) error {
	return d.setPreserve(name, v, PreserveOff)
}

func (d *decoder) setPreserve(name string, v *fastjson.Value, ifTrue Preserve) error {
	p, is := ifTrue, false
	if err := d.boolean(name, v, &is); err != nil {
		return err
	}
	if !is {
		p = PreserveOn + PreserveOff - ifTrue
	}
	if d.think.preserve != "" && d.req.Think.Preserve != p {
		return fmt.Errorf("fields %q and %q disagree about the thoughts of earlier turns; send one of them",
			d.think.preserve, name)
	}
	d.req.Think.Preserve, d.think.preserve = p, name
	return nil
}

func (d *decoder) effort(name string, v *fastjson.Value) error {
	const must = `"none", "minimal", "low", "medium", "high", "xhigh" or "max"`
	s, err := v.StringBytes()
	if err != nil {
		return wrongType(name, v, must)
	}
	if string(s) == "none" {
		return d.setMode(name, ThinkOff)
	}
	for e := EffortMinimal; int(e) < len(efforts); e++ {
		if string(s) == efforts[e] {
			return d.setBudget(name, 0, e)
		}
	}
	return fmt.Errorf("field %q is %s; it must be %s", name, quoted(s), must)
}

// thinkMembers are the members of the object.
var thinkMembers = []string{"mode", "budget_tokens", "soft_budget_tokens", "early_exit", "answer_cue", "preserve"}

// readThink reads our own object, and ollama's short forms: true, false, or an effort.
func readThink(d *decoder, name string, v *fastjson.Value) error {
	switch v.Type() {
	case fastjson.TypeTrue, fastjson.TypeFalse:
		return d.enable(name, v)
	case fastjson.TypeString:
		return d.effort(name, v)
	}
	return d.members(name, v, "an object, a boolean or an effort", func(field, key string, v *fastjson.Value) error {
		t := &d.req.Think
		switch key {
		case "mode":
			i, err := d.word(field, v, thinkModes[1:])
			if err != nil {
				return err
			}
			return d.setMode(field, ThinkMode(i+1))
		case "budget_tokens":
			return d.budget(field, v)
		case "soft_budget_tokens":
			n, err := d.integer(field, v, -1, MaxTokensLimit)
			switch t.SoftBudgetTokens = int(n); n {
			case -1:
				t.SoftBudgetTokens = 0
			case 0:
				t.SoftBudgetTokens = -1
			}
			return err
		case "early_exit":
			i, err := d.word(field, v, earlyExits[1:])
			t.EarlyExit = EarlyExit(i + 1)
			return err
		case "answer_cue":
			s, err := d.str(field, v)
			if err == nil && len(s) > MaxAnswerCueBytes {
				return fmt.Errorf("field %q has %d bytes; it must have at most %d", field, len(s), MaxAnswerCueBytes)
			}
			t.AnswerCue = s
			return err
		case "preserve":
			return d.preserve(field, v)
		}
		if d.p.Left != nil {
			return nil
		}
		return fmt.Errorf(`field %q is not known; it must be mode, budget_tokens, soft_budget_tokens, early_exit, `+
			`answer_cue or preserve`, field)
	})
}

// readTemplateArgs reads chat_template_kwargs. Arguments about thinking, by any template's names, set the request's
// thinking options, which the server passes on by the names of the model's own template. Other arguments go to the
// template unchanged.
func readTemplateArgs(d *decoder, name string, v *fastjson.Value) error {
	raw := d.payload[d.p.json.Scan.TemplateArgs.Start:d.p.json.Scan.TemplateArgs.End]
	others := false
	err := d.members(name, v, "an object", func(field, key string, v *fastjson.Value) error {
		switch key {
		case "enable_thinking", "thinking", "enable_reasoning", "reasoning":
			return d.enable(field, v)
		case "reasoning_effort", "thinking_effort", "reasoning_strength":
			return d.templateEffort(field, v)
		case "thinking_mode", "reasoning_mode":
			return d.templateMode(field, v)
		case "thinking_budget", "reasoning_budget":
			return d.budget(field, v)
		case "preserve_thinking", "preserved_thinking", "preserve_reasoning", "keep_past_thinking":
			others = true // a template may read it otherwise
			return d.preserve(field, v)
		case "clear_thinking", "drop_thinking", "truncate_history_thinking":
			others = true
			return d.clear(field, v)
		case "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template",
			"bos_token", "eos_token":
			return fmt.Errorf("field %q is not supported by this server as an argument of the template; leave it "+
				"out, or send it as a field of the request where there is one", field)
		}
		others = true
		return nil
	})
	switch {
	case err != nil || !others:
		return err
	case len(raw) == 0: // the scanner compares keys as they are written
		return fmt.Errorf("field %q must have its name written without escapes", name)
	case len(raw) > MaxTemplateArgsBytes:
		return fmt.Errorf("field %q has %d bytes of JSON; it must be at most %d", name, len(raw), MaxTemplateArgsBytes)
	}
	d.req.TemplateArgs = append([]byte(nil), raw...)
	return nil
}

// templateEffort reads an effort, also in the words with which templates turn thinking off.
func (d *decoder) templateEffort(name string, v *fastjson.Value) error {
	switch string(v.GetStringBytes()) {
	case "no_think", "off", "disabled":
		return d.setMode(name, ThinkOff)
	}
	return d.effort(name, v)
}

// templateMode reads a mode in the words of templates.
func (d *decoder) templateMode(name string, v *fastjson.Value) error {
	const must = `"enabled", "disabled", "adaptive", "on", "off" or "auto"`
	s, err := v.StringBytes()
	if err != nil {
		return wrongType(name, v, must)
	}
	switch string(s) {
	case "enabled", "on", "thinking", "think":
		return d.setMode(name, ThinkOn)
	case "disabled", "off", "none", "no_think", "chat":
		return d.setMode(name, ThinkOff)
	case "adaptive", "auto":
		return d.setMode(name, ThinkAuto)
	}
	return fmt.Errorf("field %q is %s; it must be %s", name, quoted(s), must)
}

// maxMembers bounds an object whose members are compared with each other.
const maxMembers = 64

// members reads an object each of whose members may come once.
func (d *decoder) members(
	name string, v *fastjson.Value, must string, read func(field, key string, v *fastjson.Value) error,
) error {
	obj, err := v.Object()
	if err != nil {
		return wrongType(name, v, must)
	}
	var seen []string
	obj.Visit(func(key []byte, v *fastjson.Value) {
		if err != nil || v.Type() == fastjson.TypeNull {
			return
		}
		k := string(key)
		field := name + "." + k
		if len(k) > 40 {
			field = name + "." + strings.ToValidUTF8(k[:40], "") + "…"
		}
		for _, s := range seen {
			if s == k {
				err = fmt.Errorf("field %q is given twice", field)
				return
			}
		}
		if len(seen) == maxMembers {
			err = fmt.Errorf("field %q has more than %d members", name, maxMembers)
			return
		}
		if err = read(field, k, v); err == nil {
			seen = append(seen, k)
		}
	})
	return err
}

// word reads one of words and returns which.
func (d *decoder) word(name string, v *fastjson.Value, words []string) (int, error) {
	must := func() string { return fmt.Sprintf("one of %q", words) }
	s, err := v.StringBytes()
	if err != nil {
		return 0, wrongType(name, v, must())
	}
	for i, w := range words {
		if w == string(s) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("field %q is %s; it must be %s", name, quoted(s), must())
}

// finishThink checks the constraints between the fields about thinking.
func (d *decoder) finishThink() error {
	t := &d.req.Think
	switch {
	case t.Mode == ThinkOff && d.think.mode != "" && d.think.budget != "":
		return fmt.Errorf("field %q turns thinking off, field %q names a budget for it; send one of them", d.think.mode,
			d.think.budget)
	case t.BudgetTokens > 0 && t.SoftBudgetTokens > t.BudgetTokens:
		return fmt.Errorf("field %q is %d; it must not be above the budget of %d tokens", "think.soft_budget_tokens",
			t.SoftBudgetTokens, t.BudgetTokens)
	case d.think.mode != "" && t.Mode == ThinkOff: // overrides a default's budget
		t.BudgetTokens, t.Effort = 0, EffortDefault
	case d.think.budget != "" && t.Mode == ThinkOff: // overrides a default that is off
		t.Mode = ThinkDefault
	}
	return nil
}
