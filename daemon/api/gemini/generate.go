package gemini

import (
	"encoding/json"
	"math"
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// answer is a GenerateContentResponse, or a part of one in a stream.
type answer struct {
	Candidates []*candidate `json:"candidates"`
	Usage      *usage       `json:"usageMetadata,omitempty"`
	Model      string       `json:"modelVersion"`
	ID         string       `json:"responseId"`
}

type candidate struct {
	Content  *answerContent  `json:"content"`
	Finish   string          `json:"finishReason,omitempty"`
	Index    int             `json:"index"`
	Average  *float64        `json:"avgLogprobs,omitempty"`
	Logprobs *logprobsResult `json:"logprobsResult,omitempty"`
}

type answerContent struct {
	Parts []part `json:"parts"`
	Role  string `json:"role"` // "model"
}

type logprobsResult struct {
	Top    []topLogprobs `json:"topCandidates,omitempty"`
	Chosen []logprob     `json:"chosenCandidates"`
}

type topLogprobs struct {
	Candidates []logprob `json:"candidates"`
}

type logprob struct {
	Token   string  `json:"token"`
	TokenID int32   `json:"tokenId"`
	Logprob float32 `json:"logProbability"`
}

type usage struct {
	Prompt   int       `json:"promptTokenCount"`
	Answer   int       `json:"candidatesTokenCount"`
	Total    int       `json:"totalTokenCount"`
	Thoughts int       `json:"thoughtsTokenCount,omitempty"`
	Cached   int       `json:"cachedContentTokenCount,omitempty"`
	Details  []details `json:"promptTokensDetails"`
}

type details struct {
	Modality string `json:"modality"` // "TEXT"
	Tokens   int    `json:"tokenCount"`
}

// choice is the state of one candidate.
type choice struct {
	index    int
	parts    []part // since the last chunk of a stream
	logprobs *logprobsResult
	sum      float64 // of the log-probabilities
	tokens   int     // that have one

	open *call // a call with incomplete arguments: the API has whole calls alone
	args []byte
	eos  *wire.EOS
	why  string // finishReason
}

// answering is the state of one unfinished answer.
type answering struct {
	s      *api.Server
	w      *api.Writer
	id     string
	stream bool
	ask    *asked

	choices []*choice
	byID    map[string]*choice
	running int // choices
	done    bool
}

// serveGenerate answers generateContent and streamGenerateContent.
func serveGenerate(s *api.Server, w http.ResponseWriter, r *http.Request, model string, streams bool) {
	a := &answering{s: s, w: s.NewWriter(w), id: api.NewID("gemini-"), stream: streams, byID: map[string]*choice{}}
	w.Header().Set("X-Request-Id", a.id)
	alt := r.URL.Query().Get("alt")
	if alt != "" && alt != "json" && (alt != "sse" || !streams) {
		a.fail(api.Refusef(`the query's "alt" is %.40q; it must be "json", or "sse" for a stream`, alt))
		return
	}
	var err error
	if a.ask, err = readBody(a.id, model, r, contentTable); err != nil {
		a.fail(api.AsError(err))
		return
	}
	a.s.Warn(w, a.ask.Request)
	requests := api.Answers(a.ask.Request, a.id, 0, a.ask.answers)
	for i, req := range requests {
		ch := &choice{index: i}
		a.choices, a.byID[req.ID] = append(a.choices, ch), ch
	}
	a.running = len(requests)
	events, err := s.Start(r.Context(), requests...)
	if err != nil {
		a.fail(api.AsError(err))
		return
	}
	defer events.Close()
	if a.stream { // Google's SDKs take a comment for the beginning of an error
		a.w.Array, a.w.KeepAlive = alt != "sse", a.w.Blank
	}
	a.w.Ping = a.ask.Request.Ping
	s.Follow(a.w, events, func(ev *wire.Event) bool { a.take(ev); return !a.done })
}

// serveCount answers countTokens.
func serveCount(s *api.Server, w http.ResponseWriter, r *http.Request, model string) {
	out := s.NewWriter(w)
	req, err := readBody(api.NewID("gemini-"), model, r, countTable)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	p, err := s.Render(r.Context(), req.Request)
	if err != nil {
		Fail(out, api.AsError(err))
		return
	}
	out.JSON(http.StatusOK, struct {
		Total   int       `json:"totalTokens"`
		Details []details `json:"promptTokensDetails"`
	}{len(p.Tokens), []details{{"TEXT", len(p.Tokens)}}})
}

// take handles an event: it writes or collects parts.
func (a *answering) take(ev *wire.Event) {
	ch := a.byID[ev.ID]
	switch {
	case ev.Kind == wire.EventError:
		a.fail((*api.Error)(&ev.Error))
	case ch == nil:
	case ev.Kind == wire.EventToken:
		a.token(ch, &ev.Token)
	case ev.Kind == wire.EventToolCall:
		a.call(ch, &ev.ToolCall)
	case ev.Kind == wire.EventEOS:
		if e := api.Cut(&ev.EOS); e != nil {
			a.fail(e)
			return
		}
		a.end(ch, &ev.EOS)
	}
}

func (a *answering) token(ch *choice, t *wire.Token) {
	thought := t.Phase == wire.Thinking
	if t.Phase == wire.InPrompt || thought && !a.ask.thoughts || len(t.Text) == 0 && !t.HasLogprob {
		return
	}
	ch.close()
	if len(t.Text) > 0 {
		ch.say(string(t.Text), thought)
	}
	if t.HasLogprob && !thought {
		ch.keep(t, a.ask.top > 0)
	}
	a.tell(ch)
}

// say adds text to the last part, or a new one.
func (ch *choice) say(text string, thought bool) {
	if n := len(ch.parts); n > 0 && ch.parts[n-1].Text != nil && ch.parts[n-1].Thought == thought {
		text = *ch.parts[n-1].Text + text
		ch.parts[n-1].Text = &text
		return
	}
	ch.parts = append(ch.parts, part{Text: &text, Thought: thought})
}

// keep adds the log-probability of a token.
func (ch *choice) keep(t *wire.Token, top bool) {
	if ch.logprobs == nil {
		ch.logprobs = &logprobsResult{}
	}
	l := ch.logprobs
	own := logprob{string(t.Text), t.TokenID, finite(t.Logprob)}
	l.Chosen = append(l.Chosen, own)
	ch.sum, ch.tokens = ch.sum+float64(own.Logprob), ch.tokens+1
	if !top {
		return
	}
	at := topLogprobs{Candidates: []logprob{}}
	for _, alt := range t.Top {
		at.Candidates = append(at.Candidates, logprob{string(alt.Text), alt.Token, finite(alt.Logprob)})
	}
	l.Top = append(l.Top, at)
}

// finite bounds a log-probability to a finite value, which JSON can hold.
func finite(p float32) float32 {
	if !(p >= wire.MinLogprob) { // also NaN
		return wire.MinLogprob
	}
	return min(p, 0)
}

// call adds a part of a call.
func (a *answering) call(ch *choice, t *wire.ToolCallDelta) {
	if t.Name != "" {
		ch.close()
		a.tell(ch)
		ch.open = &call{ID: t.CallID, Name: t.Name}
	}
	ch.args = append(ch.args, t.Arguments...)
}

// close completes the open call. It drops one that the end of the answer cut off, and reports that.
func (ch *choice) close() (cut bool) {
	if ch.open == nil {
		return false
	}
	if len(ch.args) == 0 {
		ch.args = []byte("{}")
	}
	if cut = !json.Valid(ch.args); !cut {
		ch.open.Args = rawJSON(ch.args)
		ch.parts = append(ch.parts, part{Call: ch.open})
	}
	ch.open, ch.args = nil, nil
	return cut
}

// tell writes a chunk for what came since the last one, if the answer streams.
func (a *answering) tell(ch *choice) {
	if a.stream && (len(ch.parts) > 0 || ch.logprobs != nil) {
		a.chunk(a.of(a.candidate(ch)))
	}
}

func (a *answering) chunk(v any) {
	if a.w.Array {
		a.w.Item(v)
		return
	}
	a.w.Event("", v)
}

// candidate returns what a choice has, which is the next chunk's in a stream.
func (a *answering) candidate(ch *choice) *candidate {
	c := &candidate{Content: &answerContent{Parts: ch.parts, Role: "model"}, Finish: ch.why, Index: ch.index,
		Logprobs: ch.logprobs}
	if ch.why != "" && ch.tokens > 0 {
		mean := ch.sum / float64(ch.tokens)
		if !math.IsNaN(mean) {
			c.Average = &mean
		}
	}
	if len(ch.parts) == 0 {
		c.Content.Parts = []part{{Text: new(string)}}
	}
	ch.parts, ch.logprobs = nil, nil
	return c
}

func (a *answering) of(list ...*candidate) *answer {
	return &answer{Candidates: list, Model: a.s.Model(), ID: a.id}
}

// end ends a choice, and with the last one the answer.
func (a *answering) end(ch *choice, e *wire.EOS) {
	if ch.eos != nil {
		return
	}
	eos := *e
	ch.eos = &eos
	cut := ch.close()
	a.tell(ch)
	if ch.why = "STOP"; api.Ended(e, cut) == wire.Length {
		ch.why = "MAX_TOKENS"
	}
	a.running--
	a.done = a.running == 0
	switch {
	case a.stream:
		last := a.of(a.candidate(ch))
		if a.done {
			last.Usage = a.usage()
		}
		if a.chunk(last); a.done && a.w.Array {
			a.w.EndItems()
		}
	case a.done:
		var list []*candidate
		for _, ch := range a.choices {
			list = append(list, a.candidate(ch))
		}
		whole := a.of(list...)
		whole.Usage = a.usage()
		a.w.JSON(http.StatusOK, whole)
	}
}

// usage sums up all choices. Their prompt counts once.
func (a *answering) usage() *usage {
	first := a.choices[0].eos.Usage
	u := &usage{Prompt: first.PromptTokens, Cached: first.CachedTokens,
		Details: []details{{"TEXT", first.PromptTokens}}}
	for _, ch := range a.choices {
		u.Thoughts += ch.eos.Usage.ThinkTokens
		u.Answer += ch.eos.Usage.CompletionTokens - ch.eos.Usage.ThinkTokens
	}
	u.Total = u.Prompt + u.Answer + u.Thoughts
	return u
}

// fail ends the answer with an error: as its status or, after the first chunk, as the last part of the stream. In a
// stream of events that is a line of JSON, as Google's servers send it: their SDKs look for errors there alone.
func (a *answering) fail(e *api.Error) {
	if a.done {
		return
	}
	a.done = true
	switch {
	case !a.w.Begun():
		Fail(a.w, e)
	case a.w.Array:
		a.w.Item(failure(e))
		a.w.EndItems()
		a.w.Flush()
	default:
		a.w.Flush() // the SDK for JavaScript expects it to be read alone
		a.w.Bare(failure(e))
		a.w.Flush()
	}
}
