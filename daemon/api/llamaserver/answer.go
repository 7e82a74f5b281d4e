package llamaserver

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

type rawJSON = json.RawMessage

// answer is the state of one unfinished answer.
type answer struct {
	index int
	req   *wire.Request
	eos   *wire.EOS

	newLine bool // the text has a newline
	meter   api.Meter

	// Without streaming.
	text, think []byte
	tokens      []int32
	probs       []tokenProbs
}

// chunk is a part of a streamed answer.
type chunk struct {
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

// final is a whole answer, or the last chunk of a streamed one, without its text.
type final struct {
	Index      int          `json:"index"`
	Content    string       `json:"content"`
	Reasoning  string       `json:"reasoning_content,omitempty"`
	Tokens     []int32      `json:"tokens"`
	Slot       int          `json:"id_slot"`
	Stop       bool         `json:"stop"`
	Model      string       `json:"model"`
	Predicted  int          `json:"tokens_predicted"`
	Evaluated  int          `json:"tokens_evaluated"`
	Settings   *settings    `json:"generation_settings"`
	Prompt     string       `json:"prompt"`
	HasNewLine bool         `json:"has_new_line"`
	Truncated  bool         `json:"truncated"`
	StopType   string       `json:"stop_type"`
	StopWord   string       `json:"stopping_word"`
	Cached     int          `json:"tokens_cached"`
	Timings    api.Timings  `json:"timings"`
	Probs      []tokenProbs `json:"completion_probabilities,omitempty"`
}

func (a *answer) chunk(t *wire.Token) *chunk {
	ch := &chunk{Index: a.index, Tokens: []int32{}, Slot: anySlot}
	if t.TokenID >= 0 {
		ch.Tokens = append(ch.Tokens, t.TokenID)
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

func (a *answer) progress(p *wire.Progress) *chunk {
	return &chunk{Index: a.index, Tokens: []int32{}, Slot: anySlot, Progress: api.ProgressOf(p)}
}

// keep adds a token to an answer without streaming.
func (a *answer) keep(t *wire.Token) {
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
func (a *answer) probsOf(t *wire.Token) tokenProbs {
	drawn := a.req.Sampling.PostSampling
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

// final returns the whole answer or the last chunk, reduced to response_fields if there are any.
func (c *completion) final(r *http.Request, a *answer) any {
	u := &a.eos.Usage
	f := &final{
		Index: a.index, Tokens: []int32{}, Slot: anySlot, Stop: true, Model: c.s.Model(), Predicted: u.CompletionTokens,
		Evaluated:  u.PromptTokens,
		HasNewLine: a.newLine, StopType: stopType(a.eos), StopWord: a.eos.StopText, Cached: u.CachedTokens,
		Probs: a.probs,
	}
	if !c.Stream {
		f.Content, f.Reasoning = string(a.text), string(a.think)
		if c.ReturnTokens {
			f.Tokens = a.tokens
		}
	}
	f.Timings = api.TimingsOf(a.eos)
	facts := c.s.Facts()
	if facts == nil { // it was loading at the start; now it has answered
		facts = new(api.Facts)
	}
	if room := facts.Context; u.PromptTokens+u.CompletionTokens > room || u.PromptTokens+u.CompletionTokens == room &&
		a.eos.Reason == wire.Length {
		f.Truncated = true
	}
	f.Settings = settingsOf(a.req, facts, c.Stream)
	if c.wantsField("prompt") {
		f.Prompt = c.promptText(r, a.req)
	}
	if len(c.Fields) == 0 {
		return f
	}
	return pick(f, c.Fields)
}

func stopType(e *wire.EOS) string {
	switch {
	case e.StopText != "":
		return "word"
	case e.Reason == wire.Length:
		return "limit"
	}
	return "eos"
}

// promptText returns the text of the prompt, special tokens included.
func (c *completion) promptText(r *http.Request, req *wire.Request) string {
	tokens := req.PromptTokens
	if tokens == nil {
		p, err := c.s.Render(r.Context(), req)
		if err != nil {
			return req.Prompt
		}
		tokens = p.Tokens
	}
	text, err := c.s.Detokenize(tokens)
	if err != nil {
		return req.Prompt
	}
	return strings.ToValidUTF8(string(text), "\ufffd")
}

// pick returns the fields of an answer with these names. A name with slashes is a path into an object, and the whole
// path is the field's name in the result. Unknown names are skipped.
func pick(f *final, fields []string) map[string]rawJSON {
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
