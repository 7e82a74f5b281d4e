package daemon

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/runtime"
)

// infillMarkers are the markers of fill-in-the-middle, by family: before the prefix, before the suffix, before the middle.
// Which of them a model has, its vocabulary tells; the names are those of the models' cards.
var infillMarkers = [][3]string{
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, // Qwen 2.5 Coder, CodeGemma
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       // StarCoder 2, Granite 3
	{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},       // SantaCoder
	{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
	{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, // DeepSeek Coder: the hole stands where the middle goes
	{"▁<PRE>", "▁<SUF>", "▁<MID>"},                   // Code Llama
}

// errNoInfill says that a model was not trained to fill in.
var errNoInfill = errors.New(`this model has no tokens for filling in the middle; leave "suffix" out`)

// infill is the prompt after which a model writes what stands between prefix and suffix.
func (m *model) infill(owner uint32, prefix, suffix string) (tokens []runtime.Token, err error) {
	for _, names := range infillMarkers {
		var marks [3]runtime.Token
		have := true
		for i, name := range names {
			marks[i] = m.vocab.Find(name)
			have = have && marks[i] != runtime.NoToken
		}
		if !have {
			continue
		}
		before, err := m.tokens.tokenize(nil, owner, prefix, false, false)
		if err != nil {
			return nil, err
		}
		after, err := m.tokens.tokenize(nil, owner, suffix, false, false)
		if err != nil {
			return nil, err
		}
		// What the model wants at the beginning of a sequence, which an empty text has alone.
		if tokens, err = m.vocab.Tokenize(nil, "", true, false); err != nil {
			return nil, err
		}
		tokens = append(append(tokens, marks[0]), before...)
		tokens = append(append(tokens, marks[1]), after...)
		return append(tokens, marks[2]), nil
	}
	return nil, errNoInfill
}

// known checks that the vocabulary has all tokens of a prompt.
func (m *model) known(tokens []runtime.Token) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= m.vocab.Size() {
			return fmt.Errorf("entry %d is token %d, and the vocabulary has tokens 0…%d", i, t, m.vocab.Size()-1)
		}
	}
	return nil
}
