package lineedit

import (
	"strings"

	"github.com/rivo/uniseg"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

// tabWidth is the distance of tab stops, in columns.
const tabWidth = 4

// layout is a text set in rows of a window.
type layout struct {
	rows   []string // as they are shown, prompts included
	widths []int    // of rows, in columns
	starts []int    // the byte of the text each row begins with
	row    int      // the cursor's row
	head   string   // the text before the cursor in its row: writing it moves the terminal's cursor there
	col    int      // the width of head
}

// arrange sets s in rows of cols columns. The first begins with prompt, the others of a text with several lines with
// more; a row that continues a line that is too long begins with nothing.
func arrange(prompt, more, s string, at, cols int) *layout {
	l := &layout{}
	var b strings.Builder
	width := 0
	begin := func(prefix string, start int) {
		l.starts = append(l.starts, start)
		b.WriteString(prefix)
		width = uniseg.StringWidth(prefix)
	}
	end := func() {
		l.rows, l.widths = append(l.rows, b.String()), append(l.widths, width)
		b.Reset()
	}
	cursor := func() { l.row, l.head, l.col = len(l.rows), b.String(), width }
	begin(prompt, 0)
	for i := 0; i < len(s); {
		c, w := cluster(s[i:])
		shown := c
		switch {
		case c == "\n":
			if i >= at && i < at+len(c) {
				cursor()
			}
			end()
			i += len(c)
			begin(more, i)
			continue
		case c == "\t":
			w = tabWidth - width%tabWidth
			shown = strings.Repeat(" ", w)
		default:
			if shown = ui.Sanitize(c); shown != c {
				w = uniseg.StringWidth(shown)
			}
		}
		if width+w > cols && width > 0 {
			end()
			begin("", i)
		}
		if i <= at && at < i+len(c) {
			cursor()
		}
		b.WriteString(shown)
		width += w
		i += len(c)
	}
	if at >= len(s) {
		if width >= cols && len(s) > 0 {
			end()
			begin("", len(s))
		}
		cursor()
	}
	end()
	return l
}

// offset returns the byte of s that is at column col of row, or the row's last place.
func (l *layout) offset(s string, row, col int, prompt, more string) int {
	i, stop := l.starts[row], len(s)
	last := row+1 == len(l.starts)
	if !last {
		stop = l.starts[row+1]
	}
	width := 0
	switch {
	case row == 0:
		width = uniseg.StringWidth(prompt)
	case i > 0 && s[i-1] == '\n':
		width = uniseg.StringWidth(more)
	}
	for i < stop && width < col {
		c, w := cluster(s[i:])
		if c == "\n" || !last && i+len(c) == stop {
			break
		}
		if c == "\t" {
			w = tabWidth - width%tabWidth
		}
		i, width = i+len(c), width+w
	}
	return i
}
