package runtime

import "fmt"

// VocabSlack is the largest difference in size between two vocabularies that count as the same, as in llama.cpp
// (SPEC_VOCAB_MAX_SIZE_DIFFERENCE): models of one family are padded to different sizes.
const VocabSlack = 128

// SameVocab returns how many tokens two vocabularies share, from 0 on, or an error that names the first difference: of
// a token's text, of the tokens that begin and end a text, or of more than VocabSlack tokens in size. A text's tokens
// in one are then its tokens in the other. The names stand for the vocabularies in the error.
func SameVocab(a, b Vocab, nameA, nameB string) (int, error) {
	n := min(a.Size(), b.Size())
	for t := range Token(n) {
		if x, y := a.Text(t), b.Text(t); x != y {
			return 0, fmt.Errorf("token %d is %q in %s and %q in %s", t, x, nameA, y, nameB)
		}
	}
	for _, s := range []struct {
		what string
		a, b Token
	}{{"begins a text", a.BOS(), b.BOS()}, {"ends a generation", a.EOS(), b.EOS()}} {
		if s.a != s.b {
			return 0, fmt.Errorf("the token that %s is %s in %s and %s in %s", s.what, named(a, s.a), nameA,
				named(b, s.b), nameB)
		}
	}
	if d := max(a.Size(), b.Size()) - n; d > VocabSlack {
		return 0, fmt.Errorf("%s has %d tokens and %s %d, which is more than %d apart", nameA, a.Size(), nameB,
			b.Size(), VocabSlack)
	}
	return n, nil
}

func named(v Vocab, t Token) string {
	if t == NoToken {
		return "none"
	}
	return fmt.Sprintf("%d (%q)", t, v.Text(t))
}
