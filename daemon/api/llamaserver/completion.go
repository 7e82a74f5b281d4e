package llamaserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/llamaform"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

const (
	maxAnswers = 128 // per body: n_cmpl for each prompt
	maxFields  = 64  // of response_fields
)

// completionTable lists the fields that differ from the request's fields in docs/protocol.md.
var completionTable = slices.Concat(
	api.Of(api.Taken, "prompt", "stream", "n_cmpl", "n", "return_tokens", "response_fields", "timings_per_token",
		"id_slot"),
	api.Of(api.Ignored, "id", "metadata"),
	api.Table{
		{Name: "messages", Use: api.Refused, Why: "they belong to /v1/chat/completions"},
		{Name: "tools", Use: api.Refused, But: []string{"[]"}, Why: "they belong to /v1/chat/completions"},
		{Name: "suffix", Use: api.Refused, But: []string{`""`}, Why: "/infill fills in"},
	},
)

// options are the fields that all completions have.
type options struct {
	Stream       bool     `json:"stream"`
	Answers      *int     `json:"n_cmpl"`
	N            *int     `json:"n"` // the same
	ReturnTokens bool     `json:"return_tokens"`
	Fields       []string `json:"response_fields"`
	Slot         *int     `json:"id_slot"`
	api.Telemetry
}

type completionBody struct {
	Prompt rawJSON `json:"prompt"`
	options
}

// answers returns the number of answers per prompt.
func (o *options) answers() (int, error) {
	n := 1
	for _, given := range []*int{o.Answers, o.N} {
		if given != nil {
			n = *given
		}
	}
	switch {
	case o.Answers != nil && o.N != nil && *o.Answers != *o.N:
		return 0, api.Refuse(`fields "n_cmpl" and "n" are the same field and hold different values; send one of them`)
	case n < 1 || n > maxAnswers:
		return 0, api.Refusef(`field "n_cmpl" must be an integer of 1…%d`, maxAnswers)
	}
	return n, nil
}

// completion is the state of one HTTP request, with an answer for each prompt and repetition. Each answer is a request
// to the daemon.
type completion struct {
	s     *api.Server
	w     *api.Writer
	id    string
	facts *api.Facts // nil: the model was loading
	slots *slots

	options
	answers []*answer
	byID    map[string]*answer
	open    int // answers that have not ended
	done    bool
}

// answer is the state of one unfinished answer.
type answer struct {
	llamaform.Answer
	meter api.Meter
}

func newCompletion(s *api.Server, w http.ResponseWriter, k *slots) *completion {
	c := &completion{s: s, w: s.NewWriter(w), id: api.NewID("cmpl-"), facts: s.Facts(), slots: k,
		byID: map[string]*answer{}}
	w.Header().Set("X-Request-Id", c.id) // for uma-cli why and /cancel: bodies have no id
	return c
}

// serveCompletion answers POST /completion.
func (k *slots) serveCompletion(s *api.Server, w http.ResponseWriter, r *http.Request) {
	c := newCompletion(s, w, k)
	requests, err := c.read(r)
	if err != nil {
		c.fail(api.AsError(err))
		return
	}
	c.run(r, requests)
}

func (c *completion) read(r *http.Request) (list []*wire.Request, err error) {
	var in completionBody
	body, err := readTable(r, completionTable, &in, true)
	if err != nil {
		return nil, err
	}
	prompts, err := api.ReadPrompts(in.Prompt)
	if err != nil {
		return nil, err
	}
	req, err := body.Request(c.id, struct {
		Prompt string `json:"prompt"`
	}{"x"}) // a placeholder for each prompt
	if err != nil {
		return nil, err
	}
	n, err := c.want(&in.options, req, len(prompts))
	if err != nil {
		return nil, err
	}
	for _, p := range prompts {
		// Control tokens are parsed, because the output of /apply-template is a prompt for /completion.
		req.Prompt, req.PromptTokens, req.ParseSpecial = p.Text, nil, p.IsText()
		if !p.IsText() {
			if req.PromptTokens, err = p.Tokens(r.Context(), c.s, true, true); err != nil {
				return nil, err
			}
			if len(req.PromptTokens) == 0 {
				return nil, api.Refuse(`field "prompt" has no tokens`)
			}
		}
		list = c.add(list, req, n)
	}
	return list, nil
}

// want sets the fields that a body's options determine, and returns the number of answers per prompt.
func (c *completion) want(o *options, req *wire.Request, prompts int) (int, error) {
	n, err := o.answers()
	switch {
	case err != nil:
		return 0, err
	case prompts*n > maxAnswers:
		return 0, api.Refusef("%d prompts with %d answers each are more than the %d answers that one request may ask "+
			"for", prompts, n, maxAnswers)
	case len(o.Fields) > maxFields:
		return 0, api.Refusef(`field "response_fields" has %d entries; it must have at most %d`, len(o.Fields),
			maxFields)
	}
	o.Telemetry.Of(req)
	c.options = *o
	return n, nil
}

// add appends n copies of req with different seeds to list, each with its answer.
func (c *completion) add(list []*wire.Request, req *wire.Request, n int) []*wire.Request {
	for _, r := range api.Answers(req, c.id, len(c.answers), n) {
		a := &answer{Answer: llamaform.Answer{Index: len(c.answers), Request: r}}
		c.answers, c.byID[r.ID] = append(c.answers, a), a
		list = append(list, r)
	}
	return list
}

// run starts the requests and writes their answers.
func (c *completion) run(r *http.Request, requests []*wire.Request) {
	c.open = len(requests)
	stream, err := c.s.Start(r.Context(), requests...)
	if err != nil {
		c.fail(api.AsError(err))
		return
	}
	defer stream.Close()
	c.w.Streams, c.w.Ping = c.Stream, requests[0].Ping
	c.s.Follow(c.w, stream, func(ev *wire.Event) bool { c.take(r, ev); return !c.done })
}

// take handles an event: it writes or collects chunks.
func (c *completion) take(r *http.Request, ev *wire.Event) {
	a := c.byID[ev.ID]
	switch {
	case ev.Kind == wire.EventError:
		c.fail((*api.Error)(&ev.Error))
	case a == nil:
	case ev.Kind == wire.EventToken && c.Stream:
		ch := a.Chunk(&ev.Token)
		if a.meter.Token(&ev.Token, c.s.Now()); c.PerToken {
			ch.Timings = a.meter.Timings()
		}
		c.w.Event("", ch)
	case ev.Kind == wire.EventToken:
		a.Keep(&ev.Token)
	case ev.Kind == wire.EventProgress && c.Stream:
		if a.meter.Progress(&ev.Progress); !c.Progress {
			return
		}
		ch := a.Told(&ev.Progress)
		if c.PerToken {
			ch.Timings = a.meter.Timings()
		}
		c.w.Event("", ch)
	case ev.Kind == wire.EventEOS:
		if e := api.Cut(&ev.EOS); e != nil {
			c.fail(e)
			return
		}
		c.end(r, a, &ev.EOS)
	}
}

// end ends an answer, and with the last one the HTTP response.
func (c *completion) end(r *http.Request, a *answer, e *wire.EOS) {
	eos := *e
	a.EOS = &eos
	c.remember(r, a)
	if c.open--; c.Stream {
		c.w.Event("", c.final(r, a))
	}
	if c.done = c.open == 0; !c.done || c.Stream {
		return
	}
	if len(c.answers) == 1 {
		c.w.JSON(http.StatusOK, c.final(r, a))
		return
	}
	all := make([]any, len(c.answers))
	for i, a := range c.answers {
		all[i] = c.final(r, a)
	}
	c.w.JSON(http.StatusOK, all)
}

// final returns the whole answer or the last chunk, reduced to response_fields if there are any.
func (c *completion) final(r *http.Request, a *answer) any {
	f := a.Final(r.Context(), c.s, c.Stream, c.wantsField("prompt"))
	if !c.ReturnTokens {
		f.Tokens = []int32{}
	}
	if len(c.Fields) == 0 {
		return f
	}
	return pick(f, c.Fields)
}

// fail ends all answers with an error: as the status or, after the first chunk, as a last event.
func (c *completion) fail(e *api.Error) {
	if c.done {
		return
	}
	c.done = true
	if e.Overflow() {
		e.Message = fmt.Sprintf("request (%d tokens) exceeds the available context size (%d tokens), try increasing it",
			e.NPrompt, e.NCtx)
	}
	if e.ID = ""; c.w.Begun() {
		c.w.Event("", rawJSON(wire.AppendHTTPError(nil, (*wire.Error)(e))))
		c.w.Flush()
		return
	}
	fail(c.w, e)
}

// wantsField reports whether response_fields is absent, or names a field or one within it.
func (c *completion) wantsField(name string) bool {
	return len(c.Fields) == 0 || slices.ContainsFunc(c.Fields, func(f string) bool {
		return f == name || strings.HasPrefix(f, name+"/")
	})
}

// pick returns the fields of an answer with these names. A name with slashes is a path into an object, and the whole
// path is the field's name in the result. Unknown names are skipped.
func pick(f *llamaform.Final, fields []string) map[string]rawJSON {
	whole := rawJSON(api.AppendJSON(nil, f))
	picked := map[string]rawJSON{}
	for _, path := range fields {
		at := whole
		for _, name := range strings.Split(path, "/") {
			var object map[string]rawJSON
			if json.Unmarshal(at, &object) != nil {
				at = nil
				break
			}
			at = object[name]
		}
		if at != nil {
			picked[path] = at
		}
	}
	return picked
}
