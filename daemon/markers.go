package daemon

import (
	"crypto/rand"
	"iter"
	"slices"
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
//
// Markers of thinking that are no control tokens are hidden too, in system prompts as well, until it is known whether the
// prompt ends inside a thought (meridian.Tags.Begin): text that talks about "<think>" opens nothing. They are put back
// before tokenizing.
type markers struct {
	texts []string          // every control token's text
	hider *strings.Replacer // text i → open + i + shut; thinking as thoughts does
	open  string
	end   string // marks where a message that is continued ends

	thoughts *strings.Replacer // marker of thinking i → a stand-in
	restorer *strings.Replacer // and back
}

const shut = "\uf8fe"

func newMarkers(v runtime.Vocab, thinking []string) *markers {
	m := &markers{open: "\uf8ff" + rand.Text()[:12] + ":", end: "\uf8fd" + rand.Text()[:12] + shut}
	var pairs, hide, show []string
	for t := range runtime.Token(v.Size()) {
		text := v.Text(t)
		if !v.IsControl(t) || len(text) < 3 { // shorter ones ("\n" in some vocabularies) are ordinary text
			continue
		}
		pairs = append(pairs, text, m.open+strconv.Itoa(len(m.texts))+shut)
		m.texts = append(m.texts, text)
	}
	thoughtOpen := "\uf8ff" + rand.Text()[:12] + ";"
	for i, text := range thinking {
		if slices.ContainsFunc(m.texts, func(control string) bool { return strings.Contains(text, control) }) {
			continue // its control tokens are hidden
		}
		standIn := thoughtOpen + strconv.Itoa(i) + shut
		hide, show = append(hide, text, standIn), append(show, standIn, text)
	}
	m.thoughts, m.restorer = strings.NewReplacer(hide...), strings.NewReplacer(show...)
	m.hider = strings.NewReplacer(append(pairs, hide...)...)
	return m
}

// hide puts stand-ins for the markers of a user's text.
func (m *markers) hide(text string) string { return m.hider.Replace(text) }

// hideThoughts puts stand-ins for the markers of thinking alone: a system prompt may hold control tokens.
func (m *markers) hideThoughts(text string) string { return m.thoughts.Replace(text) }

// restore puts the markers of thinking back.
func (m *markers) restore(text string) string { return m.restorer.Replace(text) }

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
