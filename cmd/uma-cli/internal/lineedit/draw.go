package lineedit

import (
	"fmt"
	"strings"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

const (
	hideCursor, showCursor = "\x1b[?25l", "\x1b[?25h"
	wrapOff, wrapOn        = "\x1b[?7l", "\x1b[?7h"
	clearBelow             = "\x1b[J"
)

func up(rows int) string {
	if rows == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA", rows)
}

// home moves the cursor to the beginning of the drawn line.
func (e *Editor) home() string { return up(max(len(e.drawn)-1, 0)) + "\r" }

// draw draws the line over its previous drawing.
func (e *Editor) draw() error {
	cols, rows := e.term.size()
	prompt, cursor := e.prompt, e.text.at
	if e.search != nil {
		prompt = ui.Fit("(search: "+ui.Sanitize(e.search.query)+") ", max(cols/2, 1))
	}
	l := arrange(prompt, more, e.text.s, cursor, cols)
	height := max(rows-1, 1)
	e.top = min(e.top, l.row, max(len(l.rows)-height, 0))
	e.top = max(e.top, l.row-height+1)
	shown := l.rows[e.top:min(e.top+height, len(l.rows))]
	notes := e.notes[:min(len(e.notes), rows-len(shown))]

	var b strings.Builder
	b.WriteString(hideCursor + wrapOff + e.home() + clearBelow)
	b.WriteString(strings.Join(shown, "\r\n"))
	for _, n := range notes {
		b.WriteString("\r\n" + n)
	}
	b.WriteString(up(len(shown) + len(notes) - 1 - (l.row - e.top)))
	b.WriteString("\r" + l.head + wrapOn + showCursor)
	e.drawn, e.column = l.widths[e.top:l.row+1], l.col
	e.cols, e.rows = cols, rows
	return e.term.write(b.String())
}

// resized draws the line after the window's size has changed. Terminals rewrap rows that are too long.
func (e *Editor) resized() error {
	cols, rows := e.term.size()
	if cols == e.cols && rows == e.rows || len(e.drawn) == 0 {
		return nil
	}
	above := (max(e.column, 1) - 1) / cols
	for _, w := range e.drawn[:len(e.drawn)-1] {
		above += (max(w, 1) + cols - 1) / cols
	}
	e.drawn = make([]int, min(above, rows-1)+1)
	return e.draw()
}

// finish draws the line for the last time and returns it.
func (e *Editor) finish(err error) (string, error) {
	e.search, e.notes = nil, nil
	mark := ""
	if err == ErrInterrupt {
		mark = "^C"
	}
	line := e.text.s
	if werr := e.leave(mark); werr != nil {
		return "", werr
	}
	if err == nil && e.History != nil && strings.TrimSpace(line) != "" {
		_, _ = e.History.Write(line) // a history that cannot be kept ends no chat
	}
	return line, err
}

// leave writes the finished line so that the terminal wraps it, and moves to the row below. A text higher than the
// window is cut to its beginning.
func (e *Editor) leave(mark string) error {
	cols, rows := e.term.size()
	l := arrange(e.prompt, more, e.text.s, len(e.text.s), cols)
	var b strings.Builder
	b.WriteString(e.home() + clearBelow)
	if hidden := len(l.rows) - foldedRows; len(l.rows) >= rows && hidden > 0 {
		b.WriteString(strings.Join(l.rows[:foldedRows], "\r\n"))
		b.WriteString("\r\n" + ui.Fit(fmt.Sprintf("[%s more rows, %s bytes in all]", ui.Count(hidden),
			ui.Count(len(e.text.s))), cols))
	} else {
		for i, r := range l.rows {
			if i > 0 && l.hard(e.text.s, i) {
				b.WriteString("\r\n")
			}
			b.WriteString(r)
		}
	}
	b.WriteString(mark + "\r\n")
	e.drawn, e.column, e.top = nil, 0, 0
	return e.term.write(b.String())
}

// foldedRows is the number of rows shown of a message that is higher than the window.
const foldedRows = 5

// hard reports whether row i begins a line of the text instead of continuing one.
func (l *layout) hard(s string, i int) bool { return l.starts[i] > 0 && s[l.starts[i]-1] == '\n' }
