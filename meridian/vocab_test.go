package meridian

import (
	"bytes"
	"strings"

	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/runtime"
)

// testVocab is a vocabulary written down: pieces in order, then control tokens, whose pieces are empty.
type testVocab struct {
	pieces  [][]byte
	control []string
}

func newVocab(pieces []string, control ...string) *testVocab {
	v := &testVocab{control: control}
	for _, p := range pieces {
		v.pieces = append(v.pieces, []byte(p))
	}
	return v
}

// bytesVocab has all 256 single bytes first, as real vocabularies do, so byte b is token b.
func bytesVocab(pieces []string, control ...string) *testVocab {
	all := make([]string, 256, 256+len(pieces))
	for b := range 256 {
		all[b] = string([]byte{byte(b)})
	}
	return newVocab(append(all, pieces...), control...)
}

func (v *testVocab) Size() int { return len(v.pieces) + len(v.control) }

func (v *testVocab) Piece(t runtime.Token) []byte {
	if int(t) < len(v.pieces) {
		return v.pieces[t]
	}
	return nil
}

func (v *testVocab) Text(t runtime.Token) string {
	if int(t) < len(v.pieces) {
		return string(v.pieces[t])
	}
	return v.control[int(t)-len(v.pieces)]
}

func (v *testVocab) IsControl(t runtime.Token) bool { return int(t) >= len(v.pieces) }

func (v *testVocab) Find(text string) runtime.Token {
	for t := range runtime.Token(v.Size()) {
		if v.Text(t) == text {
			return t
		}
	}
	return runtime.NoToken
}

// Tokenize takes the longest piece each time.
func (v *testVocab) Tokenize(dst []runtime.Token, text string, _, parseSpecial bool) ([]runtime.Token, error) {
	for text != "" {
		best, size := runtime.NoToken, 0
		for t := range runtime.Token(v.Size()) {
			if s := v.Text(t); len(s) > size && strings.HasPrefix(text, s) && (parseSpecial || !v.IsControl(t)) {
				best, size = t, len(s)
			}
		}
		if best == runtime.NoToken {
			return nil, errNoSpelling
		}
		dst, text = append(dst, best), text[size:]
	}
	return dst, nil
}

type testError string

func (e testError) Error() string { return string(e) }

const errNoSpelling = testError("no token for this text")

// tokens of a text, markers parsed.
func (v *testVocab) tokens(text string) []runtime.Token {
	seq, err := v.Tokenize(nil, text, false, true)
	if err != nil {
		panic(err)
	}
	return seq
}

func mustResolve(v Vocabulary, m Markers) *Tags {
	t, err := Resolve(v, m, "")
	if err != nil {
		panic(err)
	}
	return t
}

func mustControl(cfg Config, tags *Tags, opt Options, prompt []runtime.Token) *Control {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	c, err := NewControl(&cfg, tags, opt, beginAfter(tags, prompt))
	if err != nil {
		panic(err)
	}
	return c
}

// beginAfter returns the state in which decoding begins after a prompt of these tokens, with every marker in its last
// turn counted.
func beginAfter(tags *Tags, prompt []runtime.Token) Begin {
	if tags == nil {
		return Begin{}
	}
	var text strings.Builder
	for _, t := range prompt {
		text.WriteString(tags.vocab.Text(t))
	}
	return tags.Begin(text.String(), true)
}

// transcript is the visible output of a sequence of tokens.
type transcript struct {
	think, answer bytes.Buffer
	events        []Event
}

func (tr *transcript) add(s Step) {
	tr.think.Write(s.Think)
	tr.answer.Write(s.Answer)
	if s.Event != None {
		tr.events = append(tr.events, s.Event)
	}
}

var harmony = tags.Families[0]

var thinkTags = Markers{[]string{"<think>"}, []string{"</think>"}}
