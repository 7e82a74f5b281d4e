package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
)

// screen emulates a terminal's screen: as much of a VT100 as the line editor needs.
type screen struct {
	cells    [][]rune
	row, col int
}

func newScreen(rows, cols int) *screen {
	s := &screen{cells: make([][]rune, rows)}
	for i := range s.cells {
		s.cells[i] = []rune(strings.Repeat(" ", cols))
	}
	return s
}

func (s *screen) down() {
	if s.row++; s.row == len(s.cells) {
		s.row--
		blank := []rune(strings.Repeat(" ", len(s.cells[0])))
		s.cells = append(s.cells[1:], blank)
	}
}

func (s *screen) clear(row, from int) {
	for i := from; i < len(s.cells[row]); i++ {
		s.cells[row][i] = ' '
	}
}

func (s *screen) write(text string) {
	in := []rune(text)
	for i := 0; i < len(in); i++ {
		switch r := in[i]; {
		case r == '\r':
			s.col = 0
		case r == '\n':
			s.down()
		case r == '\x1b' && i+1 < len(in) && in[i+1] == 'D':
			s.down()
			i++
		case r == '\x1b' && i+1 < len(in) && in[i+1] == '[':
			end := i + 2
			for end < len(in) && (in[end] < '@' || in[end] > '~') {
				end++
			}
			s.control(string(in[i+2:end]), in[min(end, len(in)-1)])
			i = end
		case r >= ' ':
			if s.col == len(s.cells[0]) {
				s.col = 0
				s.down()
			}
			s.cells[s.row][s.col] = r
			s.col++
		}
	}
}

func (s *screen) control(arg string, verb rune) {
	n := 1
	fmt.Sscanf(arg, "%d", &n)
	switch verb {
	case 'A':
		s.row = max(0, s.row-n)
	case 'B':
		s.row = min(len(s.cells)-1, s.row+n)
	case 'C':
		s.col = min(len(s.cells[0])-1, s.col+n)
	case 'D':
		s.col = max(0, s.col-n)
	case 'J':
		s.clear(s.row, s.col)
		for row := s.row + 1; row < len(s.cells); row++ {
			s.clear(row, 0)
		}
	case 'K':
		s.clear(s.row, s.col)
	}
}

func (s *screen) line(row int) string { return strings.TrimRight(string(s.cells[row]), " ") }

// TestPromptAtTheBottom: once the window is full, the prompt and the conversation before it are still visible.
func TestPromptAtTheBottom(t *testing.T) {
	server := (&clienttest.Server{Answer: answers}).Start(t)
	c := openConsole(t, program(t, server.Path))
	c.expect(">>> ")
	for range 3 { // more than 30 lines
		c.typeKeys("/?\r")
		c.expect("search them")
		c.expect("\x1b[?25h") // the editor has drawn its line
	}
	long := strings.Repeat("0123456789", 11) // more than a row of 100
	c.typeKeys("/no\r")
	c.expect("there is no command")
	c.expect("\x1b[?25h")
	c.typeKeys(long + "!")
	c.expect("!")
	c.expect("\x1b[?25h")

	c.mu.Lock()
	seen := c.seen.String()
	c.mu.Unlock()
	s := newScreen(30, 100)
	s.write(seen)
	var all []string
	for row := range s.cells {
		all = append(all, s.line(row))
	}
	shown := strings.Join(all, "\n")
	if want := ">>> " + long[:96] + "\n" + long[96:] + "!"; !strings.Contains(shown, want) ||
		strings.Count(shown, "0123456789") != 10 {
		t.Errorf("what was typed is not shown as it was:\n%s", shown)
	}
	if !strings.Contains(shown, "error: there is no command") {
		t.Errorf("the error is painted over:\n%s", shown)
	}
	if s.line(s.row) != long[96:]+"!" || s.col != len(long)-96+1 {
		t.Errorf("the cursor is at row %d, column %d of\n%s", s.row, s.col, shown)
	}
	c.typeKeys("\x15\x04")
	if code := c.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}
