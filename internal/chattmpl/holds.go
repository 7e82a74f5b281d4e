package chattmpl

import "strings"

// holds reports whether a rendering has the texts of msgs, in their order, and the tools. A template may trim a text,
// quote it or take markers out of it: a run of letters, digits and spaces stands for each. The first system message
// may stand anywhere: some templates put it into the last turn; so may text beside calls, which some put behind the
// results. An answer with markup may hold a thought, which templates drop.
func (t *Template) holds(out string, msgs []Message, in *Input) bool {
	if len(in.Tools) > 0 && t.tools.Offered && !strings.Contains(out, in.Tools[0].Name) {
		return false
	}
	at := 0
	for i := range msgs {
		m := &msgs[i]
		if m.Role == "assistant" && strings.ContainsAny(m.Content, "<[◁") {
			continue
		}
		word := plainRun(m.Content)
		if i == 0 && isSystem(m) || len(m.Calls) > 0 {
			if !strings.Contains(out, word) {
				return false
			}
			continue
		}
		next := strings.Index(out[at:], word)
		if next < 0 {
			return false
		}
		at += next + len(word)
	}
	return true
}

// maxRun bounds a run, and what is read of a text to find it.
const (
	maxRun  = 100
	maxRead = 4096
)

// plainRun is the longest run of letters, digits and single spaces in the beginning of a text, at most maxRun bytes.
func plainRun(text string) string {
	best, from := "", 0
	text = text[:min(len(text), maxRead)]
	for i := 0; i <= len(text); i++ {
		if i < len(text) {
			if c := text[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
				c == ' ' && i > from && text[i-1] != ' ' {
				continue
			}
		}
		if run := strings.TrimSpace(text[from:i]); len(run) > len(best) {
			best = run
		}
		from = i + 1
	}
	return strings.TrimSpace(best[:min(len(best), maxRun)])
}
