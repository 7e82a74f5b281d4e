package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// What a request asks for by texts and templates, in terms of this model's vocabulary and chat template.

// constrain adds to params what w says by texts, and refuses what the vocabulary lacks or what leaves no token.
func (m *model) constrain(owner uint32, params *sampler.Params, w *wire.Request) error {
	tokenize := func(field, text string) ([]runtime.Token, error) {
		tokens, err := m.tokens.tokenize(nil, owner, text, false, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		return tokens, nil
	}
	bias := params.LogitBias[:len(params.LogitBias):len(params.LogitBias)] // the server's defaults may share it
	for _, b := range w.TextBias {
		tokens, err := tokenize("logit_bias", b.Text)
		if err != nil {
			return err
		}
		for _, t := range tokens {
			bias = append(bias, sampler.Bias{Token: t, Bias: b.Bias})
		}
	}
	params.LogitBias = bias
	for _, word := range w.BadWords {
		bare, err := tokenize("bad_words", word)
		if err != nil {
			return err
		}
		spaced, err := tokenize("bad_words", " "+strings.TrimLeft(word, " "))
		if err != nil {
			return err
		}
		params.BadWords = append(params.BadWords, bare)
		if !slices.Equal(bare, spaced) {
			params.BadWords = append(params.BadWords, spaced)
		}
	}
	if params.DryMultiplier > 0 {
		if params.DrySequenceBreaks = m.breaks(); w.DryBreaks != nil {
			params.DrySequenceBreaks = m.breakers(w.DryBreaks)
		}
	}
	return params.Fits(m.facts)
}

// maxBreakTail is how many tokens of a sequence breaker are looked at behind its first.
const maxBreakTail = 20

// breakers finds the tokens with which each of texts can begin, anywhere in the token, and what follows where it goes on
// beyond that token. One pass over the vocabulary, however many texts there are.
func (m *model) breakers(texts []string) sampler.Breakers {
	var starts [256][]string // by first byte
	for _, text := range texts {
		starts[text[0]] = append(starts[text[0]], text)
	}
	out := sampler.Breakers{}
	tails := map[string][]int32{}
	add := func(t runtime.Token, tail []int32) {
		if !slices.ContainsFunc(out[t], func(o []int32) bool { return slices.Equal(o, tail) }) {
			out[t] = append(out[t], tail)
		}
	}
	for t := range runtime.Token(m.vocab.Size()) {
		piece := m.vocab.Piece(t)
		if m.vocab.IsControl(t) {
			piece = []byte(m.vocab.Text(t))
		}
		for i, c := range piece {
			for _, text := range starts[c] {
				n := len(piece) - i // bytes of text that fit into the token
				switch {
				case n >= len(text):
					if string(piece[i:i+len(text)]) == text {
						add(t, nil)
					}
				case text[:n] == string(piece[i:]):
					rest := text[n:]
					tail, ok := tails[rest]
					if !ok {
						var err error
						if tail, err = m.vocab.Tokenize(nil, rest, false, false); err != nil {
							continue
						}
						tail = tail[:min(len(tail), maxBreakTail)]
						tails[rest] = tail
					}
					add(t, tail)
				}
			}
		}
	}
	return out
}

// templateArgs decodes chat_template_kwargs. A number without fraction and exponent is an integer to a template.
func templateArgs(raw []byte) map[string]any {
	vars := map[string]any{}
	if len(raw) == 0 {
		return vars
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	if err := in.Decode(&vars); err != nil {
		panic("daemon: chat_template_kwargs: " + err.Error()) // package wire checked it
	}
	for k, v := range vars {
		vars[k] = plainNumbers(v)
	}
	return vars
}

func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plainNumbers(v[k])
		}
	}
	return v
}

// renderRequest is the text that w asks to be continued, of msgs, its conversation, and whether that is its last message.
func (m *model) renderRequest(w *wire.Request, msgs []wire.Message, with rendering) (text string, continued bool, err error) {
	last := len(msgs) - 1
	if msgs[last].Role != "assistant" || w.Continue == wire.ContinueOff {
		text, err = m.renderTurn(msgs, with, !w.NoOpening)
		return text, false, err
	}
	// The template says what comes before an answer and how a thought is closed, also in an answer's history; a mark at
	// the end of the message tells where its text stands in the rendering.
	marked := slices.Clone(msgs)
	end := &marked[last].Content
	if *end == "" && marked[last].ReasoningContent != "" {
		end = &marked[last].ReasoningContent
	}
	*end += m.markers.end
	if text, err = m.renderTurn(marked, with, false); err != nil {
		return "", true, err
	}
	if i := strings.LastIndex(text, m.markers.end); i >= 0 {
		return text[:i], true, nil
	}
	// The template leaves it out: then it follows the opening of an answer, as it is.
	text, err = m.render(msgs[:last], with)
	return text + msgs[last].Content, true, err
}
