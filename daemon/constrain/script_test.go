package constrain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestScripts runs the answers of testdata/*.txt, with a real phase router, parser of calls and mask worker, on a
// vocabulary whose tokens are bytes and markers. Commands:
//
//	new [harmony|spelled] [notation=NAME] [FORMAT] [calls=auto|required|NAME] [one-call] [continued=TEXT]
//	    [header|thinking] [budget=N] [spent]
//	             begins an answer; FORMAT is json, json_object, regex, choice or grammar. Its payload is the input,
//	             with "|" between choices. harmony: a model whose messages have headers; else one with the tokens
//	             <think> and </think>, or spelled: bytes, and the tokens of spelledTokens. notation: of its calls;
//	             hermes. spent: the user's budget of masks is used up
//	mask         the tokens that may come next
//	says [room=N] [unmasked]
//	             the model says the input, a Go string: prints what happens at which token, and forced text in ⟦⟧. It
//	             says no more when a token may not come or the answer has ended. unmasked: the router forces it
//	why          the entry of why, without times
//	close        the request ends
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var a *answer
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if a == nil && d.Cmd != "new" {
				t.Fatalf("%s: there is no answer", d.Pos)
			}
			switch d.Cmd {
			case "new":
				var refused string
				if a, refused = newAnswer(t, d); a == nil {
					return refused
				}
				return a.state()
			case "mask":
				return a.allowed() + "\n"
			case "says":
				text, err := strconv.Unquote(strings.TrimSpace(d.Input))
				if err != nil {
					t.Fatalf("%s: %s: %v", d.Pos, d.Input, err)
				}
				a.room = 1000
				d.MaybeScanArgs(t, "room", &a.room)
				return a.says(text, d.HasArg("unmasked"))
			case "close":
				a.c.Close()
				return a.state()
			case "why":
				w := a.c.Why()
				if w == nil {
					return "none\n"
				}
				return fmt.Sprintf("%s, %d masks, %d forced tokens\n", w.Form, w.Masks, w.ForcedTokens)
			}
			t.Fatalf("%s: command %q is unknown", d.Pos, d.Cmd)
			return ""
		})
	})
}

var scriptMarkers = []string{"<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>",
	"<|return|>"}

// spelledTokens are tokens that end a thought together with the bytes before them, and have text of the answer.
var spelledTokens = []string{">\n", ">b", ">c"}

// spelledVocab adds spelledTokens to a vocabulary.
type spelledVocab struct{ runtime.Vocab }

func (v *spelledVocab) Size() int { return v.Vocab.Size() + len(spelledTokens) }

func (v *spelledVocab) Text(t runtime.Token) string {
	if i := int(t) - v.Vocab.Size(); i >= 0 {
		return spelledTokens[i]
	}
	return v.Vocab.Text(t)
}

func (v *spelledVocab) Piece(t runtime.Token) []byte {
	if i := int(t) - v.Vocab.Size(); i >= 0 {
		return []byte(spelledTokens[i])
	}
	return v.Vocab.Piece(t)
}

func (v *spelledVocab) Tokenize(dst []runtime.Token, text string, addSpecial, parseSpecial bool) ([]runtime.Token,
	error) {
	for i, s := range spelledTokens {
		if before, after, ok := strings.Cut(text, s); ok {
			dst, _ = v.Tokenize(dst, before, addSpecial, parseSpecial)
			return v.Tokenize(append(dst, runtime.Token(v.Vocab.Size()+i)), after, false, parseSpecial)
		}
	}
	return v.Vocab.Tokenize(dst, text, addSpecial, parseSpecial)
}

// answer is one answer of a script.
type answer struct {
	t      *testing.T
	v      runtime.Vocab
	spec   *toolcall.Spec
	ctl    *meridian.Control
	calls  *toolcall.Parser // nil without tools
	masks  *Masks
	c      *Constraint
	room   int
	now    int64
	ended  bool
	said   []byte // since the newest event
	forced bool   // said ends with forced text
	events []string
	out    strings.Builder
}

// newAnswer begins an answer; nil if the request is refused, for the reason.
func newAnswer(t *testing.T, d *datadriven.TestData) (_ *answer, refused string) {
	t.Helper()
	w, o, think := wire.Request{}, Options{Owner: 1}, meridian.Options{Mode: meridian.ModeAuto,
		BudgetTokens: meridian.Unset, SoftBudgetTokens: meridian.Unset}
	model, form, template, spent, tools := fake.Config{}, "hermes", "<think></think>", false, []toolcall.Tool(nil)
	w.ParallelToolCalls = true
	for _, arg := range d.CmdArgs {
		value := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "harmony":
			model.Markers, form, template = scriptMarkers, "harmony", "<|channel|><|message|>"
		case "spelled":
			model.SpelledTags = true
		case "notation":
			form = value
		case "calls":
			tools = []toolcall.Tool{
				{Name: "now", Parameters: []byte(`{"type":"object","additionalProperties":false}`)},
				{Name: "add", Parameters: []byte(`{"type":"object","properties":{"n":{"type":"integer","minimum":0,` +
					`"maximum":9}},"required":["n"],"additionalProperties":false}`)},
			}
			switch value {
			case "auto":
			case "required":
				w.ToolChoice.Mode = wire.ToolRequired
			default:
				w.ToolChoice = wire.ToolChoice{Mode: wire.ToolNamed, Name: value}
			}
		case "one-call":
			w.ParallelToolCalls = false
		case "continued":
			o.Continued = value
		case "header":
			o.Begin.Header = true
		case "thinking":
			o.Begin.Thinking = true
		case "budget":
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			think.BudgetTokens = n
		case "spent":
			spent = true
		default:
			w.Format = format(t, arg.Key, strings.TrimSuffix(d.Input, "\n"))
		}
	}
	v := fake.New(model).Vocab()
	if model.SpelledTags {
		v = &spelledVocab{v}
	}
	marks, err := meridian.Detect(v, meridian.Markers{}, template)
	if err != nil || marks == nil {
		t.Fatalf("no markers: %v", err)
	}
	i := slices.IndexFunc(toolcall.Syntaxes, func(f toolcall.Syntax) bool { return f.Name == form })
	a := &answer{t: t, v: v, spec: toolcall.Syntaxes[i].Resolve(v)}
	src, calls, bad := Sources(&w, tools, a.spec, marks.Headers())
	if bad != nil {
		return nil, bad.Message + "\n"
	}
	var ends []runtime.Token
	for t := range runtime.Token(v.Size()) {
		if v.IsEOG(t) {
			ends = append(ends, t)
		}
	}
	g, bad := compiledNow(Vocabulary(v, marks.Texts(), a.spec, marks.Headers(), ends), src, calls)
	if bad != nil {
		return nil, bad.Message + "\n"
	}
	if tools != nil {
		a.calls = toolcall.NewParser(a.spec, toolcall.NewTools(tools), toolcall.Options{})
		o.Spec = a.spec
	}
	think.Bound, think.Headed, think.CallsOnly, think.Calls = g.Bound(), g.Headed(), g.CallsOnly(), tools != nil
	cfg := meridian.DefaultConfig()
	if a.ctl, err = meridian.NewControl(&cfg, marks, think, o.Begin); err != nil {
		t.Fatal(err)
	}
	o.MayThink = a.ctl.MayThink()
	a.masks = NewMasks(v, marks.Headers(), metrics.New(metrics.Build{}))
	t.Cleanup(a.masks.Close)
	a.masks.budget.now = func() time.Time { return time.Unix(1000, 0) }
	a.c = New(a.masks, &g, o)
	if spent {
		for _, of := range []*compiledSource{g.format, g.calls} {
			if of != nil {
				of.costly = true
			}
		}
		for a.masks.budget.charge(o.Owner, maskBurst) == nil {
		}
	}
	a.c.Want(a.place())
	a.decode()
	return a, ""
}

func format(t *testing.T, kind, payload string) wire.Format {
	t.Helper()
	for _, k := range []wire.FormatKind{wire.FormatJSON, wire.FormatSchema, wire.FormatRegex, wire.FormatChoice,
		wire.FormatGrammar} {
		if k.String() != kind {
			continue
		}
		if k == wire.FormatChoice {
			return wire.Format{Kind: k, Choices: strings.Split(payload, "|")}
		}
		return wire.Format{Kind: k, Payload: payload}
	}
	t.Fatalf("%q is unknown", kind)
	return wire.Format{}
}

// compiledNow compiles sources, each of which may be nil.
func compiledNow(v *grammar.Vocabulary, format, calls *Source) (g Grammars, bad *wire.Error) {
	back := make(chan []*Waiter, 1)
	c := NewCache(metrics.New(metrics.Build{}), func() *grammar.Vocabulary { return v },
		func(list []*Waiter) { back <- list })
	var notes wire.Notes
	w := &Waiter{Owner: 1}
	for {
		g, parked, bad := c.Get(format, calls, w, &notes)
		if !parked {
			return g, bad
		}
		<-back
	}
}

func (a *answer) place() Place {
	return Place{Answer: a.ctl.InAnswer(), Thought: a.ctl.InThought(), Header: a.ctl.InHeader(),
		MayThink: a.ctl.MayThink(), Openers: a.ctl.Openers()}
}

// decode has the wanted masks computed.
func (a *answer) decode() {
	a.masks.Begin()
	a.masks.End()
}

// says has the model say a text, and returns the events.
func (a *answer) says(text string, unmasked bool) string {
	a.out.Reset()
	a.said = a.said[:0]
	tokens, _ := a.v.Tokenize(nil, text, false, true)
	for len(tokens) > 0 && !a.ended {
		tok, forced := a.ctl.Next(a.now)
		if forced {
			a.event("the control forces it")
		} else {
			if tok = tokens[0]; !unmasked {
				mask, _ := a.c.Mask(a.place())
				if mask != nil && !mask.Has(tok) {
					a.say(tok, false)
					a.event("may not come: " + a.allowed())
					a.flush()
					break
				}
			}
			tokens = tokens[1:]
		}
		for more := a.accept(tok); more; more = a.accept(tok) {
			tok = a.c.Forced()
			if len(tokens) > 0 && tokens[0] == tok { // the text has it too
				tokens = tokens[1:]
			}
		}
		a.decode()
	}
	if len(a.said) > 0 {
		fmt.Fprintf(&a.out, "%q\n", a.text())
	}
	return a.out.String()
}

// accept does what the decode loop does with a token, and reports whether a forced one follows.
func (a *answer) accept(tok runtime.Token) (more bool) {
	a.now++
	before, wasForced := a.c.State(), a.c.withoutRow
	v, bad := a.c.Accept(tok, a.place(), a.room)
	a.say(tok, a.c.withoutRow > wasForced)
	if bad != nil {
		a.event("fails: " + bad.Message)
		a.flush()
		a.ended = true
		return false
	}
	a.tell(v.Calls)
	eog, piece := a.v.IsEOG(tok), a.v.Piece(tok)
	if a.calls != nil && !(a.ctl.InThought() && !a.ctl.InHeader()) {
		piece = a.spec.Piece(tok, piece)
	}
	s := a.ctl.OnToken(tok, piece, eog, a.now)
	if len(s.Answer) > 0 && a.calls != nil {
		if s.Plain {
			a.calls.Quote(s.Answer)
		} else {
			a.calls.Push(s.Answer)
		}
	}
	h := Heard{Released: s.Answer}
	if h.Ended = v.Last || eog && s.Event.Has(meridian.Completed); h.Ended {
		a.ended = true
		a.event("ends")
	}
	if a.calls != nil {
		a.ctl.Verbatim(a.calls.Busy())
		h.Busy, h.InSection, h.Opening = a.calls.Busy(), a.calls.InSection(), a.calls.Opening()
	}
	if v.Opened && !h.Ended {
		a.ctl.Opened()
		a.event("opens a thought")
	}
	h.At = a.place()
	say, bad := a.c.Follow(tok, h)
	a.tell(say)
	if after := a.c.State(); after != before {
		a.event(before.String() + " → " + after.String())
	}
	if bad != nil {
		a.event("fails: " + bad.Message)
		a.ended = true
	}
	a.flush()
	return v.More && !a.ended
}

func (a *answer) tell(how Calls) {
	switch how {
	case Stream:
		a.calls.Stream(true)
		a.event("calls are streamed")
	case Whole:
		a.calls.Stream(false)
		a.event("calls are whole")
	case Plain:
		a.calls.Plain()
		a.event("no calls")
	}
}

func (a *answer) event(text string) { a.events = append(a.events, text) }

// flush prints the events of the newest token behind the text since those before.
func (a *answer) flush() {
	if len(a.events) == 0 {
		return
	}
	fmt.Fprintf(&a.out, "%q: %s\n", a.text(), strings.Join(a.events, ", "))
	a.said, a.events = a.said[:0], nil
}

// say adds a token to the text since the newest event.
func (a *answer) say(tok runtime.Token, forced bool) {
	if forced != a.forced {
		a.said = append(a.said, map[bool]string{true: "⟦", false: "⟧"}[forced]...)
	}
	if a.forced = forced; len(a.v.Piece(tok)) > 0 {
		a.said = append(a.said, a.v.Piece(tok)...)
	} else {
		a.said = append(a.said, a.v.Text(tok)...)
	}
}

// text returns the text since the newest event.
func (a *answer) text() []byte {
	if a.forced {
		a.said, a.forced = append(a.said, "⟧"...), false
	}
	return a.said
}

// state returns the state, and the request's field where a grammar holds the answer.
func (a *answer) state() string {
	switch {
	case a.c == nil:
		return "no constraint\n"
	case a.c.Applies():
		return fmt.Sprintf("%v: %s\n", a.c.State(), a.c.Field())
	}
	return a.c.State().String() + "\n"
}

// allowed prints the mask of the next token.
func (a *answer) allowed() string {
	mask, bound := a.c.Mask(a.place())
	if mask == nil {
		return "any token"
	}
	if err := a.c.Err(); bound && err != nil {
		reason, _, _ := strings.Cut(err.Error(), ":")
		return "none: " + reason
	}
	var list []string
	n := 0
	for t := runtime.Token(0); int(t) < a.v.Size(); t++ {
		if !mask.Has(t) {
			continue
		}
		n++
		text := a.v.Text(t)
		switch {
		case a.v.IsEOG(t):
			text = "end"
		case !a.v.IsControl(t):
			text = strconv.Quote(text)
		}
		if !slices.Contains(list, text) { // there are several ends
			list = append(list, text)
		}
	}
	if n > 20 {
		return fmt.Sprintf("%d of %d tokens", n, a.v.Size())
	}
	return strings.Join(list, " ")
}
