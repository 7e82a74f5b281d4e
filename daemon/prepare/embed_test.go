package prepare

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

// wordVocab is a vocabulary of bytes whose sequences begin with 1 and end with 2, and whose texts may be cut behind a
// space.
type wordVocab struct{ runtime.Vocab }

func (wordVocab) Tokenize(dst []runtime.Token, text string, special, _ bool) ([]runtime.Token, error) {
	if special {
		dst = append(dst, 1)
	}
	for _, b := range []byte(text) {
		dst = append(dst, runtime.Token(b))
	}
	if special {
		dst = append(dst, 2)
	}
	return dst, nil
}

func (wordVocab) Cut(text string, least int, _ bool) int {
	if at := strings.IndexByte(text[least-1:], ' '); at >= 0 {
		return least + at
	}
	return len(text)
}

// TestTextsInParts: a text that is tokenized in parts has the tokens that it has as a whole, with what begins and ends
// a sequence once.
func TestTextsInParts(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("word ", textPart), strings.Repeat("x", 3*textPart)} {
		m := &Model{Vocab: wordVocab{}, Embedder: &Embedder{end: []runtime.Token{2}}}
		parts := 0
		got, err := m.textTokens(text, false, func(int) bool { parts++; return true })
		whole, _ := m.Vocab.Tokenize(nil, text, true, false)
		if err != nil || !slices.Equal(got, whole) {
			t.Errorf("%.20q: %d tokens, the whole has %d; %v", text, len(got), len(whole), err)
		}
		if least := 1 + len(text)/(textPart+8); strings.Contains(text, " ") && parts < least {
			t.Errorf("%.20q: %d parts, at least %d expected", text, parts, least)
		}
		if _, err := m.textTokens(text, false, func(int) bool { return false }); !errors.Is(err, errGivenUp) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}
