package prepare

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/runtime"
)

// infillMarkers are the markers of fill-in-the-middle by model family, from the models' cards: before the prefix,
// before the suffix, before the middle. A model has those of its vocabulary.
var infillMarkers = [][3]string{
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, // Qwen 2.5 Coder, CodeGemma
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       // StarCoder 2, Granite 3
	{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},       // SantaCoder
	{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
	{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, // DeepSeek Coder; the hole marks the place of the middle
	{"▁<PRE>", "▁<SUF>", "▁<MID>"},                   // Code Llama
}

// errNoInfill is the error of a model without fill-in-the-middle markers.
var errNoInfill = errors.New(`this model has no tokens for filling in the middle; leave "suffix" out`)

// InfillTokens returns the markers of a model: set, which are those that its file sets, else the tokens of a family's
// markers; nil if the vocabulary, which find looks into, has no complete family.
func InfillTokens(set []runtime.Token, find func(string) (runtime.Token, bool)) []runtime.Token {
	if set != nil {
		return set
	}
	for _, names := range infillMarkers {
		var marks []runtime.Token
		for _, name := range names {
			if t, ok := find(name); ok {
				marks = append(marks, t)
			}
		}
		if len(marks) == len(names) {
			return marks
		}
	}
	return nil
}

// infill returns the fill-in-the-middle prompt for prefix and suffix.
func (m *Model) infill(owner uint32, prefix, suffix string) (tokens []runtime.Token, err error) {
	marks := m.infillers
	if marks == nil {
		return nil, errNoInfill
	}
	before, err := m.tokens.tokenize(nil, owner, prefix, false, false)
	if err != nil {
		return nil, err
	}
	after, err := m.tokens.tokenize(nil, owner, suffix, false, false)
	if err != nil {
		return nil, err
	}
	// An empty text has only the special tokens that the model needs at the beginning of a sequence.
	if tokens, err = m.Vocab.Tokenize(nil, "", true, false); err != nil {
		return nil, err
	}
	tokens = append(append(tokens, marks[0]), before...)
	tokens = append(append(tokens, marks[1]), after...)
	return append(tokens, marks[2]), nil
}

// known returns an error if a token of a prompt is not in the vocabulary.
func (m *Model) known(tokens []runtime.Token) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= m.Vocab.Size() {
			return fmt.Errorf("entry %d is token %d, and the vocabulary has tokens 0…%d", i, t, m.Vocab.Size()-1)
		}
	}
	return nil
}
