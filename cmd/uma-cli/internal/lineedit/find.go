package lineedit

import (
	"strings"

	"github.com/rivo/uniseg"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

// search is a search through the history.
type search struct {
	query string
	entry int // the entry that is shown, -1 = none holds the query
	back  text
}

// searchKey executes k in a search; false means that the search is over and k applies to the line.
func (e *Editor) searchKey(k key) bool {
	s := e.search
	switch k.name {
	case "text":
		s.query += strings.ReplaceAll(k.text, "\n", " ")
		e.find(s.entry)
	case "backspace":
		q := text{s: s.query, at: len(s.query)}
		q.cut(q.before())
		s.query = q.s
		e.find(e.History.Len())
	case "C-r":
		e.find(s.entry - 1)
	case "C-g", "C-c", "escape":
		e.text, e.search = s.back, nil
	default:
		if s.entry < e.History.Len() {
			e.entry = s.entry
		}
		e.search = nil
		return false
	}
	return true
}

// find shows the newest entry at or before from that holds the query.
func (e *Editor) find(from int) {
	for i := min(from, e.History.Len()-1); i >= 0; i-- {
		line, err := e.History.GetLine(i)
		if at := strings.Index(line, e.search.query); err == nil && at >= 0 {
			e.search.entry = i
			e.text = text{s: line, at: at}
			return
		}
	}
	e.notes = []string{"no older line has this"}
}

// complete inserts the common prefix of all completions, or lists them when there is none.
func (e *Editor) complete(again bool) {
	if e.Complete == nil {
		return
	}
	head := e.text.s[:e.text.at]
	options := e.Complete(head)
	if len(options) == 0 {
		return
	}
	word := head[strings.LastIndexByte(head, ' ')+1:]
	common := options[0]
	for _, o := range options[1:] {
		for !strings.HasPrefix(o, common) {
			_, n := lastCluster(common)
			common = common[:len(common)-n]
		}
	}
	if strings.HasPrefix(common, word) && len(common) > len(word) {
		e.text.insert(valid(common[len(word):]))
		return
	}
	if len(options) > 1 || again {
		cols, rows := e.term.size()
		e.notes = columns(options, cols, max(rows/2, 1))
	}
}

func lastCluster(s string) (string, int) {
	t := text{s: s, at: len(s)}
	from := t.before()
	return s[from:], len(s) - from
}

// columns sets words side by side in at most rows rows.
func columns(words []string, cols, rows int) []string {
	width := 0
	for _, w := range words {
		width = max(width, uniseg.StringWidth(ui.Sanitize(w))+2)
	}
	perRow := max((cols+2)/width, 1) // the space behind the last one may be missing
	var out []string
	for i := 0; i < len(words); i += perRow {
		if len(out) == rows-1 && i+perRow < len(words) {
			return append(out, ui.Fit("and "+ui.Count(len(words)-i)+" more", cols))
		}
		var b strings.Builder
		for _, w := range words[i:min(i+perRow, len(words))] {
			w = ui.Sanitize(w)
			b.WriteString(w + strings.Repeat(" ", width-uniseg.StringWidth(w)))
		}
		out = append(out, ui.Fit(strings.TrimRight(b.String(), " "), cols))
	}
	return out
}
