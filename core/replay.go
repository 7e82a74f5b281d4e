package core

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// Replayed counts what a replay compared.
type Replayed struct {
	Steps, Batches, Tokens, Ops int
	Lines                       int // of the recording that belong to the core
}

// Replay reads a recording and lets another Core decide again. The error names the first line at which it decides
// something else, or cannot be read; a recording that breaks off in the middle of a line is replayed up to there.
func Replay(recording []byte) (Replayed, error) {
	p := player{answers: map[string][][]int64{}, thoughts: map[ID]*replayed{}}
	lines := strings.Split(string(recording), "\n")
	lines = lines[:len(lines)-1] // after the last newline, or a line that breaks off
	for i, line := range lines {
		text, ours := strings.CutPrefix(line, tracePrefix)
		if !ours {
			continue
		}
		p.Lines++
		if err := p.line(text); err != nil {
			return p.Replayed, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if p.c == nil {
		return p.Replayed, fmt.Errorf("no line begins with %q: this is no recording of a core", tracePrefix+"config")
	}
	return p.Replayed, nil
}

// maxReplayCells bounds what a recording can ask for.
const maxReplayCells = 1 << 22

// player replays one recording.
type player struct {
	Replayed
	c        *Core
	answers  map[string][][]int64 // of the stores, in order
	thoughts map[ID]*replayed
	expect   []string // lines of the newest step that are still to come in the recording
	draft    runtime.Batch
}

// replayed is a request's Thinking: what the recording says its tokens meant.
type replayed struct {
	phase meridian.Phase
	event meridian.Event
	probe int
	fork  []Token
}

func (t *replayed) Phase() meridian.Phase { return t.phase }
func (t *replayed) OnToken(Token, []byte, bool, int64) meridian.Step {
	return meridian.Step{Event: t.event}
}
func (t *replayed) Flush() (think, answer []byte) { return nil, nil }
func (t *replayed) EndThink(int64) bool           { return false }
func (t *replayed) OnProbe(float64)               {}
func (t *replayed) ProbeFailed()                  {}
func (t *replayed) ProbeDue() ([]Token, bool) {
	for len(t.fork) < t.probe {
		t.fork = append(t.fork, 0)
	}
	return t.fork[:t.probe], t.probe > 0
}

// Find and Missing implement Stores from the recording.
func (p *player) answer(what string) []int64 {
	a := p.answers[what]
	if len(a) == 0 {
		panic(fmt.Sprintf("the recording has no further answer of the stores to %q", what))
	}
	p.answers[what] = a[1:]
	return a[0]
}

func (p *player) Find(uint64, []Token, int) (int, Tier, bool) {
	a := p.answer("find")
	return int(a[0]), Tier(a[1]), a[2] != 0
}

func (p *player) Missing(uint64, []Token) int { return int(p.answer("missing")[0]) }

// numbersOf returns the numbers behind a line's first word.
func numbersOf(words []string, least int) ([]int64, error) {
	if len(words) < least {
		return nil, fmt.Errorf("%d numbers, want %d", len(words), least)
	}
	out := make([]int64, len(words))
	for i, w := range words {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no number", w)
		}
		out[i] = n
	}
	return out, nil
}

// line carries out one line.
func (p *player) line(text string) (err error) {
	defer func() {
		// A hand-made recording can hold inputs that the scheduler or the tree refuses; they panic then.
		if r := recover(); r != nil {
			err = fmt.Errorf("%q: %v", word(text), r)
		}
	}()
	name, rest, _ := strings.Cut(text, " ")
	switch {
	case name == "config":
		return p.begin([]byte(rest))
	case p.c == nil:
		return fmt.Errorf("%q before the config line", name)
	case name == ">":
		return p.compare(rest)
	case len(p.expect) > 0:
		return fmt.Errorf("the recording ends the step here; the replay goes on with %q", p.expect[0])
	case name == "arrive":
		now, request, _ := strings.Cut(rest, " ")
		return p.arrive(now, []byte(request))
	}
	words := strings.Fields(rest)
	least := map[string]int{"next": 1, "done": 6, "token": 7, "part": 5, "parts_end": 5, "history": 3, "offloaded": 3,
		"limit": 4, "threads": 4, "drafted": 1, "draft_failed": 0,
		"find": 3, "missing": 1, "no_token": 2, "shutdown": 1, "drop": 1, "pin": 1, "unpin": 1, "copy_all": 1}
	want, known := least[name]
	if !known {
		want = 2
	}
	v, err := numbersOf(words, want)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if name == "find" || name == "missing" { // the call that asked stands behind it
		p.answers[name] = append(p.answers[name], v)
		return nil
	}
	return p.call(name, v)
}

func word(text string) string { w, _, _ := strings.Cut(text, " "); return w }

func (p *player) begin(config []byte) error {
	c := Config{}
	t := tracedConfig{Config: &c}
	if err := json.Unmarshal(config, &t); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	if c.Sched.Cells > maxReplayCells || c.Sched.MaxRunning > 256 || c.Sched.MaxBatch > maxReplayCells {
		return fmt.Errorf("config: %d cells, %d requests at once, batches of %d: more than any daemon has (%d, 256, "+
			"%d)",
			c.Sched.Cells, c.Sched.MaxRunning, c.Sched.MaxBatch, maxReplayCells, maxReplayCells)
	}
	if t.Stored {
		c.Stores = p
	}
	if err := c.Draft.Validate(); err != nil {
		return err
	}
	n := min(c.Draft.Batch, maxReplayCells)
	p.draft = runtime.Batch{Token: make([]Token, n), Pos: make([]runtime.Pos, n), Seq: make([]Seq, n),
		Logits: make([]int8, n)}
	var err error
	p.c, err = New(c)
	return err
}

func (p *player) arrive(now string, request []byte) error {
	at, err := strconv.ParseInt(now, 10, 64)
	if err != nil {
		return fmt.Errorf("arrive: %q is no time", now)
	}
	q := tracedRequest{Spec: &Spec{}}
	if err := json.Unmarshal(request, &q); err != nil {
		return fmt.Errorf("arrive: %w", err)
	}
	if q.Prompt != len(q.Tokens) || q.Prompt < 1 || min(q.Keep, q.Shareable) < 0 ||
		max(q.Keep, q.Shareable) > q.Prompt {
		return fmt.Errorf("arrive: a prompt of %d tokens, of which %d are the system prompt and %d are kept; the "+
			"line has %d", q.Prompt, q.Shareable, q.Keep, len(q.Tokens))
	}
	if q.Kind > Embed {
		return fmt.Errorf("arrive: kind %d is unknown", q.Kind)
	}
	if q.Kind == Embed && q.MaxTokens != 1 {
		return fmt.Errorf("arrive: a text to embed with %d tokens to generate", q.MaxTokens)
	}
	t := &replayed{phase: q.Phase}
	p.thoughts[q.ID] = t
	p.c.Handle(Instant(at), Input{Kind: Arrive, Request: &Request{ID: q.ID, Spec: q.Spec, Arrived: q.Arrived,
		Tokens: q.Tokens, Control: t}})
	return nil
}

func (p *player) compare(want string) error {
	if len(p.expect) == 0 {
		return fmt.Errorf("the recording has %q here, the replay ended the step", want)
	}
	got := p.expect[0]
	p.expect = p.expect[1:]
	if got != want {
		return fmt.Errorf("recorded %q, replayed %q", want, got)
	}
	return nil
}

// call carries out a call with numbers.
func (p *player) call(name string, v []int64) error {
	request := func() (*Request, error) {
		if r := p.c.Request(ID(v[1])); r != nil {
			return r, nil
		}
		return nil, fmt.Errorf("%s: request %d is not live", name, v[1])
	}
	switch name {
	case "next":
		s := p.c.Next(Instant(v[0]))
		p.took(s)
	case "shutdown":
		p.took(p.c.Shutdown(Instant(v[0])))
	case "done":
		res := Result{Outcome: sched.Outcome(v[1]), Took: time.Duration(v[2]), CopyTook: time.Duration(v[3]),
			CopyTokens: int(v[4]), CopyFailed: v[5] != 0}
		for c := v[6:]; len(c) >= 5; c = c[5:] {
			res.Copies = append(res.Copies, Copied{RestoreID(c[0]), int(c[1]), CopyState(c[2]), int(c[3]), int(c[4])})
		}
		p.c.Done(Instant(v[0]), &res)
	case "drafted", "draft_failed":
		if !p.c.FillDraft(&p.draft) {
			return fmt.Errorf("%s: the replay asks nothing of the draft model here", name)
		}
		if name == "draft_failed" {
			p.c.DraftFailed()
			return nil
		}
		tokens := make([]Token, 0, len(v)-1)
		for _, tok := range v[1:] {
			tokens = append(tokens, Token(tok))
		}
		p.c.Drafted(time.Duration(v[0]), tokens)
	case "token":
		r, err := request()
		if err != nil {
			return err
		}
		if v[5] < 0 || v[5] > int64(p.c.cfg.Sched.MaxBatch) {
			return fmt.Errorf("token: a probe of %d rows; a batch has %d", v[5], p.c.cfg.Sched.MaxBatch)
		}
		t := p.thoughts[r.ID]
		t.event, t.phase, t.probe = meridian.Event(v[3]), meridian.Phase(v[4]), int(v[5])
		eog := EndKind(v[6]) == Stopped
		if eog {
			t.event |= meridian.Completed
		}
		p.Tokens++
		r.More = len(v) > 7 && v[7] != 0
		if said := p.c.Token(Instant(v[0]), r, Token(v[2]), nil, eog, nil, nil); said.End != EndKind(v[6]) {
			return fmt.Errorf("token of request %d: recorded end %d, replayed %d", r.ID, v[6], said.End)
		}
	case "no_token":
		r, err := request()
		if err != nil {
			return err
		}
		p.c.NoToken(r, sched.Reason(v[0]))
	case "drop":
		return ignoreMissing(p.c.Drop(uint64(v[0])))
	case "pin":
		return ignoreMissing(p.c.Pin(uint64(v[0])))
	case "unpin":
		return ignoreMissing(p.c.Unpin(uint64(v[0])))
	case "copy_all":
		p.c.CopyAll(uint64(v[0]))
	default:
		return p.handle(name, v)
	}
	return nil
}

// ignoreMissing: the recorded call failed in the same way.
func ignoreMissing(error) error { return nil }

func (p *player) handle(name string, v []int64) error {
	for kind, n := range inputNames {
		if n != name {
			continue
		}
		in := Input{Kind: kind, Req: ID(v[1])}
		switch kind {
		case Threads:
			in.N, in.Disturbed = int(v[2]), v[3] != 0
		case Part, PartsEnd:
			in.Restore, in.P0, in.P1 = RestoreID(v[2]), int(v[3]), int(v[4])
		case Offloaded:
			if in.Tier = Tier(v[2]); in.Tier >= NumTiers {
				return fmt.Errorf("offloaded: tier %d; there are %d", v[2], NumTiers)
			}
		case Limit:
			in.Limit, in.Waited = time.Duration(v[2]), time.Duration(v[3])
		case History:
			if v[2] != 0 {
				in.Tokens = make([]Token, 0, len(v)-3)
				for _, tok := range v[3:] {
					in.Tokens = append(in.Tokens, Token(tok))
				}
			}
		}
		p.c.Handle(Instant(v[0]), in)
		return nil
	}
	return fmt.Errorf("%q is no call of the core", name)
}

func (p *player) took(s *Step) {
	p.Steps++
	p.Ops += len(s.Ops)
	if len(s.Plan.Batch) > 0 {
		p.Batches++
	}
	p.expect = strings.Split(strings.TrimSuffix(string(s.Append(nil)), "\n"), "\n")
	if p.expect[0] == "" {
		p.expect = nil
	}
}
