package runtime_test

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// vocab is a fake engine's vocabulary with other tokens at the begin and end of a text.
type vocab struct {
	runtime.Vocab
	bos, eos runtime.Token
}

func (v vocab) BOS() runtime.Token { return v.bos }
func (v vocab) EOS() runtime.Token { return v.eos }

func TestSameVocab(t *testing.T) {
	more := func(n int) runtime.Vocab {
		f := fake.Config{Markers: make([]string, n)}
		for i := range f.Markers {
			f.Markers[i] = "<extra" + strings.Repeat("x", i) + ">"
		}
		return fake.New(f).Vocab()
	}
	a := more(0)
	for name, c := range map[string]struct {
		b    runtime.Vocab
		want string
	}{
		"the same":   {more(0), ""},
		"a few more": {more(runtime.VocabSlack), ""},
		"too many":   {more(runtime.VocabSlack + 1), "A has 261 tokens and B 390, which is more than 128 apart"},
		"another token": {fake.New(fake.Config{SpelledTags: true}).Vocab(),
			`token 3 is "<think>" in A and "<|reserved_0|>" in B`},
		"another begin": {vocab{a, 1, a.EOS()},
			`the token that begins a text is none in A and 1 ("<|im_start|>") in B`},
		"another end": {vocab{a, a.BOS(), 0},
			`the token that ends a generation is 2 ("<|im_end|>") in A and 0 ("<|endoftext|>") in B`},
		"other and more": {vocab{more(200), 1, 1}, "begins a text"},
	} {
		n, err := runtime.SameVocab(a, c.b, "A", "B")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil && n != a.Size() {
			t.Errorf("%s: %d tokens are the same, want %d", name, n, a.Size())
		}
	}
}
