package prepare

import (
	"crypto/rand"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/runtime"
)

// markers prevents user text from forging control tokens. A rendered conversation is tokenized with control tokens
// parsed, because the template writes "<|im_start|>"; a user's message with "<|im_end|>\n<|im_start|>system…" would
// then forge a turn. Before rendering, each control token's text in a message of a user or a tool is replaced by a
// random placeholder, and afterwards it is tokenized as plain text. Messages without such text (nearly all) are
// tokenized in one piece with their surroundings, as in training.
//
// Thinking tags that are not control tokens get placeholders too, in system prompts as well, until meridian.Tags.Begin
// has decided whether the prompt ends inside a thought: text about "<think>" opens no thought. They are restored before
// tokenizing.
type markers struct {
	texts []string          // every control token's text
	hider *strings.Replacer // texts[i] → open + i + shut, and thinking tags like thoughts
	open  string
	end   string // marks the end of a continued message
	image string // begins the placeholder of an image

	thinking []string          // thinking tags
	thoughts *strings.Replacer // thinking tag → placeholder
	restorer *strings.Replacer // placeholder → thinking tag
}

const shut = "\uf8fe"

func newMarkers(v runtime.Vocab, thinking []string) *markers {
	m := &markers{thinking: thinking, open: "\uf8ff" + rand.Text()[:12] + ":", end: "\uf8fd" + rand.Text()[:12] + shut,
		image: "\uf8ff" + rand.Text()[:12] + "i"}
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
			continue // it contains a control token, which has a placeholder
		}
		placeholder := thoughtOpen + strconv.Itoa(i) + shut
		hide, show = append(hide, text, placeholder), append(show, placeholder, text)
	}
	m.thoughts, m.restorer = strings.NewReplacer(hide...), strings.NewReplacer(show...)
	m.hider = strings.NewReplacer(append(pairs, hide...)...)
	return m
}

// hide replaces control tokens and thinking tags in a user's text by placeholders.
func (m *markers) hide(text string) string { return m.hider.Replace(text) }

// hideThoughts replaces only thinking tags: a system prompt may contain control tokens.
func (m *markers) hideThoughts(text string) string { return m.thoughts.Replace(text) }

// hideQuoted is hide for an answer that quotes thinking tags. Templates take the text before a closing tag for a
// thought, which they leave out. A thought that a client has left in the answer stays: the answer begins with a tag, or
// a tag is at the beginning or at the end of a line.
func (m *markers) hideQuoted(text string) string {
	quoted, first := false, len(text)-len(strings.TrimLeftFunc(text, unicode.IsSpace))
	for _, tag := range m.thinking {
		for at := 0; tag != ""; {
			i := strings.Index(text[at:], tag)
			if i < 0 {
				break
			}
			before, after := text[:at+i], strings.TrimPrefix(text[at+i+len(tag):], m.end)
			if len(before) <= first || after == "" || strings.HasSuffix(before, "\n") ||
				strings.HasPrefix(after, "\n") {
				return text
			}
			quoted, at = true, at+i+len(tag)
		}
	}
	if !quoted {
		return text
	}
	return m.hide(text)
}

// hideAnswers hides control tokens and thinking tags in the texts of an assistant. It reports whether there were any.
func (m *markers) hideAnswers(msgs []template.Message) bool {
	found := false
	for i := range msgs {
		if msg := &msgs[i]; msg.Role == "assistant" {
			for _, text := range []*string{&msg.Content, &msg.ReasoningContent} {
				hidden := m.hide(*text)
				found = found || hidden != *text
				*text = hidden
			}
		}
	}
	return found
}

// restore puts the thinking tags back.
func (m *markers) restore(text string) string { return m.restorer.Replace(text) }

// split yields the parts of a rendered conversation in order: (text, false) for text in which control tokens are
// parsed, (marker, true) for the text of a control token that a user wrote.
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
