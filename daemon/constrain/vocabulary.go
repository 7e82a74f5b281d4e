package constrain

import (
	"slices"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime"
)

// Vocabulary returns the vocabulary of a model's grammars: without control tokens, thinking markers and tokens with a
// fence's byte, and with the markers of tool calls and of messages with headers between fences (package tags). thinking
// are the texts of thinking markers, ends the tokens that end a generation; calls and h may be nil.
func Vocabulary(v runtime.Vocab, thinking []string, calls *toolcall.Spec, h *meridian.Headers, ends []runtime.Token,
) *grammar.Vocabulary {
	pieces := make([][]byte, v.Size())
	for t := range runtime.Token(len(pieces)) {
		if p := v.Piece(t); !v.IsControl(t) && !slices.ContainsFunc(p, isFence) {
			pieces[t] = p
		}
	}
	for _, text := range thinking {
		if t := v.Find(text); t != runtime.NoToken {
			pieces[t] = nil
		}
	}
	for t := range pieces {
		if calls != nil {
			if p := calls.Piece(runtime.Token(t), nil); p != nil {
				pieces[t] = p
			}
		}
		if h != nil {
			if p := h.Piece(runtime.Token(t)); p != nil {
				pieces[t] = p
			}
		}
	}
	return grammar.NewVocabulary(pieces, ends)
}

// isFence reports whether c is a byte of fences, which UTF-8 does not have.
func isFence(c byte) bool { return c >= tags.ShownFence }
