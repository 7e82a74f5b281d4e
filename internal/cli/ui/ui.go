// Package ui writes to terminals and pipes for the commands: it decides which escape sequences an output gets, draws
// and clears a status line, and makes the text of a model safe to show.
//
// A pipe or a file gets text alone: no colour, no status line, the bytes unchanged. On a terminal with NO_COLOR
// (no-color.org) or TERM=dumb there are no escapes, but the status line, which needs only carriage returns, stays.
package ui

import (
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fatih/color"
	"github.com/mattn/go-isatty"
	"golang.org/x/term"
)

// Terminal writes to one output. Not safe for concurrent use: its status line and its text share a cursor.
type Terminal struct {
	w       io.Writer
	tty     bool
	colored bool
	capable bool
	width   func() int
	height  func() int
	front   func() bool // reports whether the terminal is this program's now; nil = always

	dim, bold, red, green, yellow *color.Color

	status int  // columns the status line occupies, 0 = none shown
	atBOL  bool // the cursor is at the beginning of a line
	drawn  bool // Redraw has shown a screen
	lines  wrap // of a model's text, on a terminal that knows escapes
}

// Open describes f: colour and a status line only when it is a terminal.
func Open(f *os.File) *Terminal {
	tty := isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd())
	t := New(f, tty, tty && ColorWanted(os.Getenv), func() int {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
		return 80
	})
	t.front = func() bool { return foreground(f) }
	t.capable = Capable(os.Getenv)
	t.height = func() int {
		if _, h, err := term.GetSize(int(f.Fd())); err == nil && h > 0 {
			return h
		}
		return 24
	}
	return t
}

// Size is the window's, in columns and rows; 0, 0 is no window: a pipe or a file, where text is as long as it is.
func (t *Terminal) Size() (cols, rows int) {
	if !t.tty {
		return 0, 0
	}
	return t.width(), t.height()
}

// New returns a Terminal over any writer: tty enables the status line and the sanitising of text, colored the escapes.
func New(w io.Writer, tty, colored bool, width func() int) *Terminal {
	style := func(a ...color.Attribute) *color.Color {
		c := color.New(a...)
		if colored {
			c.EnableColor()
		} else {
			c.DisableColor()
		}
		return c
	}
	return &Terminal{
		w: w, tty: tty, colored: colored, capable: colored, width: width, atBOL: true,
		height: func() int { return 24 },
		dim:    style(color.Faint), bold: style(color.Bold), red: style(color.FgRed), green: style(color.FgGreen),
		yellow: style(color.FgYellow),
	}
}

// Window returns a terminal with a window of cols × rows, for tests of its content.
func Window(w io.Writer, colored bool, cols, rows int) *Terminal {
	t := New(w, true, colored, func() int { return cols })
	t.capable, t.height = true, func() int { return rows }
	return t
}

// ColorWanted reports whether the environment allows escapes: NO_COLOR unset or empty, and a terminal that is Capable.
func ColorWanted(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && Capable(getenv)
}

// Capable reports whether the terminal knows escapes: TERM names one that is not "dumb".
func Capable(getenv func(string) string) bool {
	name := getenv("TERM")
	return name != "" && name != "dumb"
}

// Animated reports whether a status line may move by itself: on a terminal that is Capable.
func (t *Terminal) Animated() bool { return t.tty && t.capable }

// IsTTY reports whether the output is a terminal.
func (t *Terminal) IsTTY() bool { return t.tty }

// Dim, Bold, Red, Green and Yellow style s, or return it as it is where escapes are not wanted.
func (t *Terminal) Dim(s string) string    { return t.dim.Sprint(s) }
func (t *Terminal) Bold(s string) string   { return t.bold.Sprint(s) }
func (t *Terminal) Red(s string) string    { return t.red.Sprint(s) }
func (t *Terminal) Green(s string) string  { return t.green.Sprint(s) }
func (t *Terminal) Yellow(s string) string { return t.yellow.Sprint(s) }

// Print writes text of our own (already styled), taking the status line away first.
func (t *Terminal) Print(s string) error {
	if s == "" {
		return nil
	}
	err := t.write(s)
	t.lines.begin(column(s, t.lines.col))
	return err
}

func (t *Terminal) write(s string) error {
	t.ClearStatus()
	t.atBOL = strings.HasSuffix(s, "\n")
	_, err := io.WriteString(t.w, s)
	return err
}

// Println is Print with a newline.
func (t *Terminal) Println(s string) error { return t.Print(s + "\n") }

// JSON prints v as one line of JSON.
func (t *Terminal) JSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.Println(string(b))
}

// Text writes a model's text: as it came to a pipe; on a terminal with control characters made visible, and broken into
// lines at words.
func (t *Terminal) Text(s string) error {
	if s = t.shown(s); s == "" {
		return nil
	}
	return t.write(s)
}

// shown returns a model's text as this output shows it.
func (t *Terminal) shown(s string) string {
	if t.tty {
		s = Sanitize(s)
	}
	if t.Animated() {
		if t.atBOL || t.status > 0 {
			t.lines.col = 0
		}
		s = t.lines.push(s, t.width())
	}
	return s
}

// DimText is Text in dim, for thinking.
func (t *Terminal) DimText(s string) error {
	if s = t.shown(s); s == "" {
		return nil
	}
	bol := strings.HasSuffix(s, "\n")
	err := t.write(t.Dim(s))
	t.atBOL = bol
	return err
}

// FreshLine ends the current line unless it is empty.
func (t *Terminal) FreshLine() error {
	t.ClearStatus()
	if t.atBOL {
		return nil
	}
	return t.Print("\n")
}

// Status shows s (plain text, one line) dim where the cursor stands, in place of the status before it. It is cut to
// the terminal's width, so that it never wraps and can be taken away with a carriage return. On anything but a
// terminal, behind text on the same line, and by a job in the background (COMMAND &), nothing is shown.
func (t *Terminal) Status(s string) {
	if !t.tty || (!t.atBOL && t.status == 0) || (t.front != nil && !t.front()) {
		return
	}
	if t.status >= t.width() {
		t.ClearStatus() // the window has become narrower
	}
	s = Fit(s, t.width()-1)
	n := Width(s)
	if n == 0 {
		return
	}
	switch pad := max(t.status-n, 0); {
	case t.colored:
		io.WriteString(t.w, "\r"+t.Dim(s)+"\x1b[K")
	default:
		io.WriteString(t.w, "\r"+s+strings.Repeat(" ", pad)+strings.Repeat("\b", pad))
	}
	t.status = n
	t.atBOL = false
}

// ClearStatus removes the status line and leaves the cursor at the beginning of its line.
func (t *Terminal) ClearStatus() {
	if t.status == 0 {
		return
	}
	switch over := (t.status - 1) / max(t.width(), 1); {
	case t.colored && over > 0: // the window has become narrower, and the terminal has broken the line
		io.WriteString(t.w, "\r\x1b["+strconv.Itoa(over)+"A\x1b[J")
	case t.colored:
		io.WriteString(t.w, "\r\x1b[K")
	default:
		io.WriteString(t.w, "\r"+strings.Repeat(" ", t.status)+"\r")
	}
	t.status, t.atBOL = 0, true
}

// CursorMoved tells the Terminal that something else (a line editor, an echoed ^C) left the cursor at the
// beginning of a line.
func (t *Terminal) CursorMoved() {
	t.status, t.atBOL = 0, true
	t.lines.begin(0)
}

// Redraw shows a screen in place of the previous one, cut to the window. Before the first screen the window's contents
// move into the scrollback. On other outputs screens follow each other, separated by an empty line.
func (t *Terminal) Redraw(screen string) error {
	if !t.Animated() {
		if t.drawn {
			screen = "\n" + screen
		}
		t.drawn = true
		return t.Print(screen)
	}
	cols, rows := t.Size()
	lines := strings.Split(strings.TrimSuffix(FitLines(screen, cols), "\n"), "\n")
	lines = lines[:min(len(lines), rows)]
	var b strings.Builder
	if !t.drawn {
		b.WriteString(strings.Repeat("\n", rows))
		t.drawn = true
	}
	b.WriteString("\x1b[H" + strings.Join(lines, "\x1b[K\n") + "\x1b[K\x1b[J")
	return t.Print(b.String())
}

// NewScreen makes the next Redraw a first one, after other output to the window.
func (t *Terminal) NewScreen() { t.drawn = false }

// Sanitize makes text from outside safe to show on a terminal. A model (or a prompt pasted to it) can write
// escape sequences that move the cursor, rename the window or answer for the user; every control character but tab
// and newline is shown as its visible picture instead, and invalid UTF-8 as U+FFFD.
func Sanitize(s string) string {
	clean := true
	for i := 0; i < len(s) && clean; i++ {
		c := s[i]
		clean = c >= 0x20 && c < 0x7f || c == '\n' || c == '\t'
	}
	if clean {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune('\u2400' + r) // the control pictures block
		case r == 0x7f:
			b.WriteRune('\u2421')
		case r >= 0x80 && r < 0xa0, isBidi(r):
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isBidi reports the overrides that reorder the characters around them, which can make shown code differ from
// copied code. Plain marks (LRM, RLM) are left: right-to-left text needs them.
func isBidi(r rune) bool {
	return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
