package prepare

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
	"github.com/uma-serve/uma-serve/sched"
)

// Prepared is a request on its way to the decode loop. Its Spec (core.Spec, and in it what the scheduler reads) and its
// Shell are written by Answer or Texts alone, once; the rest is state, which the decode loop owns from Handle(Arrive)
// on. The caller sets ID, Arrived, Data and Resident.
type Prepared struct {
	core.Request
	Shell

	Phases *meridian.Control // Request.Control
	Chain  *sampler.Chain
}

// Shell is the immutable part of a request that only the daemon reads.
type Shell struct {
	StopTokens []core.Token    // end the answer
	Views      []*runtime.View // of its images, in order; set before Answer
	SpelledEnd string          // likewise, and the client did not name it; "": none
	Continued  bool            // the prompt ends within the last message
	Notes      []wire.Note     // changes to its conversation
	Adapters   adapters.Choice

	CallSyntax *toolcall.Spec // syntax of tool calls in the answer; nil without tools
	CallBegun  string         // the end of the prompt that is the beginning of a call
	Begin      meridian.Begin // the state at the end of the prompt: in a thought, in a header; zero for a raw prompt

	// Of a chat, for History.
	messages []wire.Message
	render   renderInput
}

// NewPrepared returns a request of owner, which others may read while it is prepared.
func NewPrepared(owner uint32) Prepared {
	return Prepared{Request: core.Request{Spec: &core.Spec{Spec: sched.Spec{Owner: owner}}}}
}

// Constrained says how a grammar constrains an answer. The zero value is a free answer, also one whose tool calls alone
// are constrained.
type Constrained struct {
	Bound     bool // a grammar constrains the answer from its first token on
	Headed    bool // the grammar has the headers of messages
	CallsOnly bool // the answer consists of tool calls
}

// Refuses returns the error with which the model refuses every request for an answer, whatever else it says; nil if it
// answers.
func (m *Model) Refuses() *wire.Error {
	if m.Info.Encoder {
		return &wire.Error{Code: wire.NotSupported,
			Message: fmt.Sprintf("no answer: the model is an encoder (%s), which makes "+
				"embeddings and generates no text", m.Info.Architecture)}
	}
	return nil
}

// Line makes the text of the newline protocol in w a user's message if the model has a chat template; otherwise it
// stays a raw prompt.
func (m *Model) Line(w *wire.Request) {
	if m.template != nil {
		w.Messages, w.Prompt = []wire.Message{{Role: "user", Content: w.Prompt}}, ""
	}
}

// Answer prepares w: it fills out, which NewPrepared has made. The decode loop owns scratch, which all its chains
// share. Answer renders and tokenizes, which takes milliseconds for a long prompt.
func (m *Model) Answer(out *Prepared, w *wire.Request, by Constrained, scratch *sampler.Scratch) *wire.Error {
	choice, err := m.Adapters.Choose(w)
	if err != nil {
		return badRequest(err)
	}
	p, bad := m.readPrompt(out.Owner, w, out.Views)
	if bad != nil {
		return bad
	}
	if bad := m.setPrompt(out, w, &p); bad != nil {
		return bad
	}
	if bad := m.setAdapters(out, w, choice); bad != nil {
		return bad
	}
	params, bad := m.samplingParams(out.Owner, w)
	if bad != nil {
		return bad
	}
	out.StopTokens = params.StopTokens
	out.PromptRows = w.Stream && w.PromptLogprobs > 0
	m.setTargets(out, w)
	if bad := m.setImages(out, &p); bad != nil {
		return bad
	}
	out.Notes = notesOf(w, p.changes)
	m.readCalls(out, w, p.text)
	if bad := m.setThinking(out, w, by); bad != nil {
		return bad
	}
	if p.chat && !p.cut && !m.cfg.NoPrefixCache && !w.FillOnly {
		m.setChat(out, w, &p)
	}
	stops := w.Stop
	if p.chat && m.spelledEnd != "" && !slices.Contains(stops, m.spelledEnd) {
		out.SpelledEnd = m.spelledEnd
		stops = append(slices.Clip(stops), m.spelledEnd)
	}
	out.Text.Init(stops)
	out.Chain = sampler.New(params, m.Facts, scratch)
	for _, t := range p.tokens {
		if !runtime.IsImage(t) { // no sampled token repeats it
			out.Chain.Accept(t)
		}
	}
	out.Chain.Begin()
	return nil
}

// setPrompt sets the prompt and the maximum length of the answer.
func (m *Model) setPrompt(out *Prepared, w *wire.Request, p *prompt) *wire.Error {
	n, nCtx := len(p.tokens), m.Longest()
	if n > nCtx || n == nCtx && !w.FillOnly {
		advice := "shorten the prompt or start uma-serve with a larger --ctx-size"
		switch {
		case nCtx < m.Caps.ContextTokens:
			advice = fmt.Sprintf("shorten the prompt: of the context of %d tokens, --request-ctx-size leaves one "+
				"request this much", m.Caps.ContextTokens)
		case m.Info.Positions > 0 && nCtx >= m.Info.Positions:
			advice = fmt.Sprintf("shorten the prompt: the model has learned %d positions; no --ctx-size gives it more",
				m.Info.Positions)
		}
		return &wire.Error{Code: wire.ContextLength, NPrompt: n, NCtx: nCtx, Message: fmt.Sprintf(
			"context_length_exceeded: the prompt of %d tokens (n_prompt) exceeds the available context size (n_ctx), "+
				"%d tokens of which the answer needs at least one; %s", n, nCtx, advice)}
	}
	out.MaxTokens = m.maxTokens(w, max(nCtx-n, 1), len(p.segments) > 0)
	out.Fill = w.FillOnly
	out.Prompt, out.Continued, out.Begin = n, p.continued, p.begin
	out.Tokens = append(make([]runtime.Token, 0, min(n+out.MaxTokens, nCtx)), p.tokens...)
	if m.Caps.Seals {
		out.Seals = m.messageEnds(out.Tokens)
	}
	return nil
}

// mostEnds is the number of messages at the end of a prompt whose ends are worth looking for.
const mostEnds = 64

// messageEnds returns the positions in a prompt at which a run of control tokens begins: there a message begins or
// ends, in every chat format whose markers are tokens.
func (m *Model) messageEnds(tokens []runtime.Token) (ends []int) {
	for i := len(tokens) - 1; i > 0 && len(ends) < mostEnds; i-- {
		if m.Vocab.IsControl(tokens[i]) && !m.Vocab.IsControl(tokens[i-1]) {
			ends = append(ends, i)
		}
	}
	slices.Reverse(ends)
	return ends
}

// samplingParams returns w's sampling parameters with a seed, and with its texts (bad words, biases, breakers) as
// tokens.
func (m *Model) samplingParams(owner uint32, w *wire.Request) (sampler.Params, *wire.Error) {
	params := w.Sampling
	if !params.SeedSet {
		params.SeedSet = true
		if params.Seed = rand.Uint64(); m.cfg.Seed >= 0 {
			params.Seed = uint64(m.cfg.Seed)
		}
	}
	if err := m.constrain(owner, &params, w); err != nil {
		return params, &wire.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	return params, nil
}

// notesOf returns the changes to w's conversation: by its API, and for the chat template.
func notesOf(w *wire.Request, changes []template.Change) []wire.Note {
	notes := slices.Clone(w.Notes)
	for _, c := range changes {
		notes = append(notes, wire.Note{Reason: c.Reason, Text: c.Text, Times: c.Times})
	}
	return notes
}

// setChat keeps what renders the prefix of the next turn, and marks the system prompt.
func (m *Model) setChat(out *Prepared, w *wire.Request, p *prompt) {
	out.Chat = true
	out.messages, out.render = w.Messages, p.render
	if m.cfg.SharePrefixes == "system" || m.cfg.ContextShift || m.Caps.Seals {
		out.Keep = m.systemTokens(out, p.tokens)
	}
	if i, found := slices.BinarySearch(out.Seals, out.Keep); m.Caps.Seals && !found && out.Keep > 0 {
		out.Seals = slices.Insert(out.Seals, i, out.Keep)
	}
	if m.cfg.SharePrefixes == "system" {
		switch {
		case out.Salt == 0:
			out.Shareable = out.Keep
		case out.Activated && out.BaseSalt == 0:
			out.Shareable = min(out.Keep, out.MixFrom)
		}
	}
}
