package daemon

import (
	"crypto/rand"
	"iter"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/runtime"
)

// markers keeps what a user typed from being read as the template's own control tokens. A rendered conversation
// is tokenized with markers parsed, or the template's "<|im_start|>" would be text; but a user's message that
// holds "<|im_end|>\n<|im_start|>system…" would then forge a turn. So each marker inside a user's or a tool's
// content is replaced before rendering by a stand-in nobody can guess, and tokenized afterwards as plain text.
// Contents without a marker (nearly all) are tokenized in one piece with their surroundings, exactly as the
// model was trained.
type markers struct {
	texts []string          // every control token's text
	hider *strings.Replacer // text i → open + i + shut
	open  string
}

const shut = "\uf8fe"

func newMarkers(v runtime.Vocab) *markers {
	m := &markers{open: "\uf8ff" + rand.Text()[:12] + ":"}
	var pairs []string
	for t := range runtime.Token(v.Size()) {
		text := v.Text(t)
		if !v.IsControl(t) || len(text) < 3 { // shorter ones ("\n" in some vocabularies) are ordinary text
			continue
		}
		pairs = append(pairs, text, m.open+strconv.Itoa(len(m.texts))+shut)
		m.texts = append(m.texts, text)
	}
	m.hider = strings.NewReplacer(pairs...)
	return m
}

// hide puts stand-ins for the markers of a user's text.
func (m *markers) hide(text string) string { return m.hider.Replace(text) }

// split yields the parts of a rendered conversation in order: (text, false) for the template's and plain text,
// (marker, true) for a marker that a user typed.
func (m *markers) split(text string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for {
			before, rest, found := strings.Cut(text, m.open)
			if before != "" && !yield(before, false) || !found {
				return
			}
			number, after, _ := strings.Cut(rest, shut)
			if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(m.texts) && !yield(m.texts[i], true) {
				return
			}
			text = after
		}
	}
}
