// Package llamaform is llama-server's own form of an answer: that of /completion, and of "__verbose" in its other APIs.
package llamaform

import (
	"context"
	"math"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Answer collects an answer from its events. The zero value with an Index and a Request is empty.
type Answer struct {
	Index   int
	Request *wire.Request
	EOS     *wire.EOS // of a finished answer

	newLine bool // the text has a newline

	// Without streaming.
	text, think []byte
	tokens      []int32
	probs       []tokenProbs
}

// Chunk is a part of a streamed answer.
type Chunk struct {
	Index     int           `json:"index"`
	Content   string        `json:"content"`
	Reasoning string        `json:"reasoning_content,omitempty"`
	Tokens    []int32       `json:"tokens"`
	Stop      bool          `json:"stop"`
	Slot      int           `json:"id_slot"`
	Probs     []tokenProbs  `json:"completion_probabilities,omitempty"`
	Progress  *api.Progress `json:"prompt_progress,omitempty"`
	Timings   *api.Timings  `json:"timings,omitempty"`
}

// tokenProbs has log-probabilities or, with post_sampling_probs, probabilities.
type tokenProbs struct {
	tokenProb
	Top      *[]tokenProb `json:"top_logprobs,omitempty"`
	TopProbs *[]tokenProb `json:"top_probs,omitempty"`
}

type tokenProb struct {
	ID      int32    `json:"id"`
	Token   string   `json:"token"`
	Bytes   []int    `json:"bytes"` // a []byte would be base64
	Logprob *float32 `json:"logprob,omitempty"`
	Prob    *float64 `json:"prob,omitempty"`
}

// anySlot is llama-server's value for no particular slot: requests have none here.
const anySlot = -1

// Final is a whole answer, or the last chunk of a streamed one, without its text.
type Final struct {
	Index      int          `json:"index"`
	Content    string       `json:"content"`
	Reasoning  string       `json:"reasoning_content,omitempty"`
	Tokens     []int32      `json:"tokens"`
	Slot       int          `json:"id_slot"`
	Stop       bool         `json:"stop"`
	Model      string       `json:"model"`
	Predicted  int          `json:"tokens_predicted"`
	Evaluated  int          `json:"tokens_evaluated"`
	Settings   *Settings    `json:"generation_settings"`
	Prompt     string       `json:"prompt"`
	HasNewLine bool         `json:"has_new_line"`
	Truncated  bool         `json:"truncated"`
	StopType   string       `json:"stop_type"`
	StopWord   string       `json:"stopping_word"`
	Cached     int          `json:"tokens_cached"`
	Timings    api.Timings  `json:"timings"`
	Probs      []tokenProbs `json:"completion_probabilities,omitempty"`
}

// Tokens returns the ids of the answer's tokens, of thinking too.
func (a *Answer) Tokens() []int32 { return a.tokens }

// Chunk returns the chunk for a token, and keeps the token's id.
func (a *Answer) Chunk(t *wire.Token) *Chunk {
	ch := &Chunk{Index: a.Index, Tokens: []int32{}, Slot: anySlot}
	if t.TokenID >= 0 {
		ch.Tokens, a.tokens = append(ch.Tokens, t.TokenID), append(a.tokens, t.TokenID)
	}
	if t.Phase == wire.Thinking {
		ch.Reasoning = string(t.Text)
	} else {
		ch.Content = string(t.Text)
		a.newLine = a.newLine || strings.Contains(ch.Content, "\n")
	}
	if t.HasLogprob {
		ch.Probs = []tokenProbs{a.probsOf(t)}
	}
	return ch
}

// Told returns the chunk that tells of the prompt's progress.
func (a *Answer) Told(p *wire.Progress) *Chunk {
	return &Chunk{Index: a.Index, Tokens: []int32{}, Slot: anySlot, Progress: api.ProgressOf(p)}
}

// Keep adds a token to an answer without streaming.
func (a *Answer) Keep(t *wire.Token) {
	if t.TokenID >= 0 {
		a.tokens = append(a.tokens, t.TokenID)
	}
	if t.HasLogprob {
		a.probs = append(a.probs, a.probsOf(t))
	}
	if t.Phase == wire.Thinking {
		a.think = append(a.think, t.Text...)
		return
	}
	a.text = append(a.text, t.Text...)
	a.newLine = a.newLine || strings.Contains(string(t.Text), "\n")
}

// probOf returns a token with its log-probability p or, for those of the draw, its probability.
func probOf(id int32, text []byte, p float32, drawn bool) tokenProb {
	if !(p >= wire.MinLogprob) { // also NaN
		p = wire.MinLogprob
	}
	p = min(p, 0)
	t := tokenProb{ID: id, Token: strings.ToValidUTF8(string(text), ""), Bytes: make([]int, len(text))}
	for i, c := range text {
		t.Bytes[i] = int(c)
	}
	if drawn {
		prob := math.Exp(float64(p))
		t.Prob = &prob
	} else {
		t.Logprob = &p
	}
	return t
}

// probsOf returns the probabilities of a token of a.
func (a *Answer) probsOf(t *wire.Token) tokenProbs {
	drawn := a.Request.Sampling.PostSampling
	list := make([]tokenProb, len(t.Top))
	for i := range t.Top {
		list[i] = probOf(t.Top[i].Token, t.Top[i].Text, t.Top[i].Logprob, drawn)
	}
	p := tokenProbs{tokenProb: probOf(t.TokenID, t.Text, t.Logprob, drawn)}
	if drawn {
		p.TopProbs = &list
	} else {
		p.Top = &list
	}
	return p
}

// Final returns the whole answer or, with stream, the last chunk of a streamed one. It has the text of the prompt only
// if withPrompt asks for it.
func (a *Answer) Final(ctx context.Context, s *api.Server, stream, withPrompt bool) *Final {
	u := &a.EOS.Usage
	f := &Final{
		Index: a.Index, Tokens: []int32{}, Slot: anySlot, Stop: true, Model: s.Model(), Predicted: u.CompletionTokens,
		Evaluated: u.PromptTokens, HasNewLine: a.newLine, StopType: stopType(a.EOS), StopWord: a.EOS.StopText,
		Cached: u.CachedTokens, Probs: a.probs, Timings: api.TimingsOf(a.EOS),
	}
	if !stream {
		f.Content, f.Reasoning = string(a.text), string(a.think)
		f.Tokens = append(f.Tokens, a.tokens...)
	}
	facts := s.Facts()
	if facts == nil { // it was loading at the start; now it has answered
		facts = new(api.Facts)
	}
	if room := facts.Context; u.PromptTokens+u.CompletionTokens > room || u.PromptTokens+u.CompletionTokens == room &&
		a.EOS.Reason == wire.Length {
		f.Truncated = true
	}
	f.Settings = SettingsOf(a.Request, facts, stream)
	if withPrompt {
		f.Prompt = promptText(ctx, s, a.Request)
	}
	return f
}

func stopType(e *wire.EOS) string {
	switch {
	case e.StopText != "":
		return "word"
	case e.Reason == wire.Length:
		return "limit"
	case e.Reason == wire.Cancelled:
		return "none" // no token and no limit has ended it
	}
	return "eos"
}

// promptText returns the text of the prompt, special tokens included.
func promptText(ctx context.Context, s *api.Server, req *wire.Request) string {
	tokens := req.PromptTokens
	if tokens == nil {
		p, err := s.Render(ctx, req)
		if err != nil {
			return req.Prompt
		}
		tokens = p.Tokens
	}
	text, err := s.Detokenize(tokens)
	if err != nil {
		return req.Prompt
	}
	return strings.ToValidUTF8(string(text), "\ufffd")
}
