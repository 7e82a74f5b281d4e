package prepare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// constrain adds w's bad words, text biases and DRY breakers to params, as tokens. It refuses tokens outside the
// vocabulary and parameters that exclude every token.
func (m *Model) constrain(owner uint32, params *sampler.Params, w *wire.Request) error {
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
	return params.Fits(m.Facts)
}

// maxBreakTail is the maximum number of tokens of a sequence breaker after its first.
const maxBreakTail = 20

// breakers returns the tokens in which an occurrence of one of texts can begin, each with the tokens that must follow
// if the text extends beyond it. It makes one pass over the vocabulary for all texts.
func (m *Model) breakers(texts []string) sampler.Breakers {
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
	for t := range runtime.Token(m.Vocab.Size()) {
		piece := m.Vocab.Piece(t)
		if m.Vocab.IsControl(t) {
			piece = []byte(m.Vocab.Text(t))
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
						if tail, err = m.Vocab.Tokenize(nil, rest, false, false); err != nil {
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
