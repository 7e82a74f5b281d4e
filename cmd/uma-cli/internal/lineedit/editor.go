// Package lineedit reads lines from a terminal: editing by characters as a reader sees them (grapheme clusters of any
// script), lines that are longer than the window is wide, texts that are higher than it, messages of several lines,
// bracketed paste, a history that can be searched, completion, suspension by Ctrl-Z.
//
// The keys are those of Emacs and readline. Input that is typed before a prompt is kept for it.
//
// Columns are counted only to break rows. The cursor is placed by writing the text before it, and rows are written
// with wrapping switched off. So a terminal that draws a character wider or narrower than Unicode says shows an uneven
// edge at worst.
package lineedit

import (
	"errors"
	"io"
	"os"
	"time"
)

// ErrInterrupt is Ctrl-C.
var ErrInterrupt = errors.New("interrupted")

// History is the earlier lines, 0 the oldest.
type History interface {
	Len() int
	GetLine(i int) (string, error)
	Write(line string) (int, error)
}

// terminal is an Editor's interface to a console. read returns errPaused, errResized and errContinued for events that
// are not failures.
type terminal interface {
	begin() error
	end()
	read(buf []byte, d time.Duration) (int, error)
	write(s string) error
	size() (cols, rows int)
	suspend() error
	resume() error
}

var (
	errPaused    = errors.New("nothing was typed")
	errResized   = errors.New("the window has another size")
	errContinued = errors.New("the program was stopped and goes on")
)

// Editor reads lines. Its fields are set before the first ReadLine. Not safe for concurrent use.
type Editor struct {
	History History // nil = none
	// completions of the line's last word; may be nil
	Complete func(line string) []string
	More     func(line string) bool // Enter adds a line to the message instead of ending it; nil = never

	term    terminal
	keys    decoder
	pending []byte // read and not looked at yet; kept from one prompt to the next

	prompt string
	text   text
	killed string // what Ctrl-Y brings back
	goal   int    // the column that Up and Down aim at; -1 = the cursor's own
	last   string // the name of the key before

	entry  int    // the entry of the history that is shown; History.Len() = the new line
	draft  string // the new line, while another entry is shown
	search *search
	notes  []string // rows below the line, until the next key

	drawn  []int // widths of the rows on the screen, down to the cursor's
	column int   // the cursor's
	top    int   // the first row shown of a text higher than the window
	cols   int   // of the window, when it was drawn
	rows   int
}

// Open returns an Editor on the process's terminal.
func Open(in, out *os.File) (*Editor, error) {
	c, err := openConsole(in, out)
	if err != nil {
		return nil, err
	}
	return &Editor{term: c}, nil
}

// PasteOn and PasteOff switch bracketed paste. It is on from the first prompt to the end of the program, so that a text
// that is pasted during an answer is one message, too.
const (
	PasteOn  = "\x1b[?2004h"
	PasteOff = "\x1b[?2004l"
)

// Close restores the terminal for the shell.
func (e *Editor) Close() { e.term.write(PasteOff) }

// more is the beginning of a message's rows after the first.
const more = "... "

// keyPause is the longest pause within the bytes of one key. The Escape key, which also begins other keys, is
// recognised after it.
const keyPause = 500 * time.Millisecond

// ReadLine shows prompt and returns what was typed, io.EOF for Ctrl-D on an empty line, ErrInterrupt (with the line so
// far) for Ctrl-C. The cursor is then at the beginning of a line.
func (e *Editor) ReadLine(prompt string) (line string, err error) {
	if err := e.term.begin(); err != nil {
		return "", err
	}
	defer e.term.end()
	e.prompt, e.text, e.search, e.notes, e.goal, e.last = prompt, text{}, nil, nil, -1, ""
	e.drawn, e.column, e.top = nil, 0, 0
	e.draft, e.entry = "", 0
	if e.History != nil {
		e.entry = e.History.Len()
	}
	if err := e.term.write(PasteOn); err != nil {
		return "", err
	}
	buf := make([]byte, 64<<10)
	stale, paused := true, false
	for {
		k, n := e.keys.next(e.pending, paused)
		paused = false
		if n > 0 {
			e.pending = e.pending[n:]
			if k.name == "" {
				continue
			}
			stale = true
			if done, err := e.key(k); done {
				return e.finish(err)
			} else if err != nil {
				return "", err
			}
			continue
		}
		if stale && !e.keys.pasting {
			// Process all pending input before drawing the line.
			switch err := e.read(buf, 0); {
			case err == nil:
				continue
			case !errors.Is(err, errPaused):
				return "", err
			}
			if err := e.draw(); err != nil {
				return "", err
			}
			stale = false
		}
		wait := time.Duration(-1)
		if len(e.pending) > 0 {
			wait = keyPause
		}
		err := e.read(buf, wait)
		if paused = errors.Is(err, errPaused); err != nil && !paused {
			return "", err
		}
	}
}

// read appends input to pending. Signals are handled meanwhile.
func (e *Editor) read(buf []byte, d time.Duration) error {
	for {
		n, err := e.term.read(buf, d)
		switch {
		case errors.Is(err, errResized):
			if err := e.resized(); err != nil {
				return err
			}
			continue
		case errors.Is(err, errContinued):
			if err := e.term.resume(); err != nil {
				return err
			}
			if err := e.fresh(); err != nil {
				return err
			}
			continue
		}
		e.pending = append(e.pending, buf[:n]...)
		return err
	}
}

// fresh draws the line at the cursor, which is at the beginning of a row after other output.
func (e *Editor) fresh() error {
	e.drawn, e.column = nil, 0
	if err := e.term.write("\r" + PasteOn); err != nil {
		return err
	}
	return e.draw()
}

// key executes k; done reports that the line is complete, or ended by err.
func (e *Editor) key(k key) (done bool, err error) {
	e.notes = nil
	last := e.last
	e.last = k.name
	if e.search != nil && e.searchKey(k) {
		return false, nil
	}
	t := &e.text
	if k.name != "up" && k.name != "down" && k.name != "C-p" && k.name != "C-n" {
		e.goal = -1
	}
	switch k.name {
	case "text":
		t.insert(k.text)
	case "enter":
		if e.More == nil || !e.More(t.s) {
			return true, nil
		}
		t.insert("\n")
	case "M-enter":
		t.insert("\n")
	case "C-c":
		return true, ErrInterrupt
	case "C-d":
		if t.s == "" {
			return true, io.EOF
		}
		t.cut(t.after())
	case "C-z":
		return false, e.suspend()
	case "tab":
		e.complete(last == "tab")
	case "C-r":
		if e.History == nil {
			return false, nil
		}
		e.search = &search{entry: e.entry, back: *t}
	case "backspace":
		t.cut(t.before())
	case "delete":
		t.cut(t.after())
	case "left", "C-b":
		t.at = t.before()
	case "right", "C-f":
		t.at = t.after()
	case "home", "C-a":
		t.at = t.lineStart()
	case "end", "C-e":
		t.at = t.lineEnd()
	case "M-<", "C-home":
		t.at = 0
	case "M->", "C-end":
		t.at = len(t.s)
	case "M-b", "C-left", "M-left":
		t.at = t.wordBefore(inWord)
	case "M-f", "C-right", "M-right":
		t.at = t.wordAfter(inWord)
	case "C-k":
		e.kill(max(t.lineEnd(), min(t.at+1, t.lineEnd()+1, len(t.s))))
	case "C-u":
		e.kill(t.lineStart())
	case "C-w":
		e.kill(t.wordBefore(inBlankWord))
	case "M-backspace":
		e.kill(t.wordBefore(inWord))
	case "M-d", "C-delete":
		e.kill(t.wordAfter(inWord))
	case "C-y":
		t.insert(e.killed)
	case "C-t":
		t.swap()
	case "C-l":
		e.drawn, e.column = nil, 0
		return false, e.term.write("\x1b[H\x1b[2J")
	case "up", "C-p":
		e.vertical(-1)
	case "down", "C-n":
		e.vertical(1)
	}
	return false, nil
}

func (e *Editor) kill(to int) {
	if gone := e.text.cut(to); gone != "" {
		e.killed = gone
	}
}

// vertical goes to the row above or below, and from the first or last row to another line of the history.
func (e *Editor) vertical(by int) {
	cols, _ := e.term.size()
	l := arrange(e.prompt, more, e.text.s, e.text.at, cols)
	if row := l.row + by; row >= 0 && row < len(l.rows) {
		if e.goal < 0 {
			e.goal = l.col
		}
		e.text.at = l.offset(e.text.s, row, e.goal, e.prompt, more)
		return
	}
	if e.History == nil {
		return
	}
	entry := e.entry + by
	if entry < 0 || entry > e.History.Len() {
		return
	}
	if e.entry == e.History.Len() {
		e.draft = e.text.s
	}
	e.show(entry)
}

// show replaces the line by an entry of the history.
func (e *Editor) show(entry int) {
	line := e.draft
	if entry < e.History.Len() {
		var err error
		if line, err = e.History.GetLine(entry); err != nil {
			return
		}
	}
	e.entry = entry
	e.text.set(line)
}

// suspend gives the terminal to the shell until the program continues.
func (e *Editor) suspend() error {
	if err := e.leave("^Z"); err != nil {
		return err
	}
	e.Close()
	if err := e.term.suspend(); err != nil {
		return err
	}
	return e.fresh()
}
