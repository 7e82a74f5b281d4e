package lineedit

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"
)

// window is a terminal of a size in memory: as much of a VT100 as the editor uses, with characters of two columns.
type window struct {
	cols, rows int
	cells      [][]string // "" = the right half of the character before it
	row, col   int
	noWrap     bool
	scrolled   []string // rows that left the window at the top

	input  []string // what each read returns; "" = nothing is typed for a while
	resize map[int][2]int
	reads  int
	atEnd  error
	began  int
}

func newWindow(cols, rows int, input ...string) *window {
	w := &window{cols: cols, rows: rows, input: input, atEnd: io.ErrUnexpectedEOF}
	for range rows {
		w.cells = append(w.cells, nil)
	}
	return w
}

func (w *window) begin() error     { w.began++; return nil }
func (w *window) end()             { w.began-- }
func (w *window) suspend() error   { return nil }
func (w *window) resume() error    { return nil }
func (w *window) size() (int, int) { return w.cols, w.rows }

func (w *window) read(buf []byte, d time.Duration) (int, error) {
	if d == 0 {
		return 0, errPaused // every read is drawn
	}
	if size, ok := w.resize[w.reads]; ok {
		delete(w.resize, w.reads)
		w.cols, w.rows = size[0], size[1]
		return 0, errResized
	}
	if w.reads == len(w.input) {
		return 0, w.atEnd
	}
	s := w.input[w.reads]
	if s == "" {
		w.reads++
		return 0, errPaused
	}
	n := copy(buf, s)
	if w.input[w.reads] = s[n:]; s[n:] == "" {
		w.reads++
	}
	return n, nil
}

func (w *window) down() {
	if w.row++; w.row == w.rows {
		w.scrolled = append(w.scrolled, w.line(0))
		w.cells = append(w.cells[1:], nil)
		w.row--
	}
}

func (w *window) write(s string) error {
	for s != "" {
		if strings.HasPrefix(s, "\x1b[") {
			end := 2
			for s[end] < '@' {
				end++
			}
			w.control(s[2:end], s[end])
			s = s[end+1:]
			continue
		}
		c, rest, width, _ := uniseg.FirstGraphemeClusterInString(s, -1)
		s = rest
		switch c {
		case "\r":
			w.col = 0
		case "\n":
			w.down()
		case "\r\n":
			w.col = 0
			w.down()
		default:
			w.put(c, width)
		}
	}
	return nil
}

func (w *window) put(c string, width int) {
	if w.col+width > w.cols {
		if w.noWrap {
			w.col = max(w.cols-width, 0)
		} else {
			w.col = 0
			w.down()
		}
	}
	line := w.cells[w.row]
	for len(line) < w.col+width {
		line = append(line, " ")
	}
	if width > 0 {
		line[w.col] = c
		for i := 1; i < width; i++ {
			line[w.col+i] = ""
		}
	}
	w.cells[w.row] = line
	w.col += width
}

func (w *window) control(arg string, verb byte) {
	n := 1
	fmt.Sscanf(arg, "%d", &n)
	switch verb {
	case 'A':
		w.row = max(w.row-n, 0)
	case 'H':
		w.row, w.col = 0, 0
	case 'J':
		if arg == "2" {
			w.cells = make([][]string, w.rows)
			return
		}
		w.cells[w.row] = w.cells[w.row][:min(w.col, len(w.cells[w.row]))]
		for i := w.row + 1; i < w.rows; i++ {
			w.cells[i] = nil
		}
	case 'l', 'h':
		if arg == "?7" {
			w.noWrap = verb == 'l'
		}
	default:
		panic("the window does not know " + arg + string(verb))
	}
}

func (w *window) line(i int) string { return strings.TrimRight(strings.Join(w.cells[i], ""), " ") }

// shown returns the text of the window, without the empty rows at its end.
func (w *window) shown() string {
	var all []string
	for i := range w.cells {
		all = append(all, w.line(i))
	}
	return strings.TrimRight(strings.Join(all, "\n"), "\n")
}

type lines []string

func (l *lines) Len() int                      { return len(*l) }
func (l *lines) GetLine(i int) (string, error) { return (*l)[i], nil }
func (l *lines) Write(s string) (int, error)   { *l = append(*l, s); return len(*l), nil }

// TestKeys: what each key does to the line.
func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		keys string // "|" = what follows comes a while later
		want string
	}{
		"plain":                     {"hello\r", "hello"},
		"every Latin-1 letter":      {"éñüöäßÿ\r", "éñüöäßÿ"},
		"backspace takes a cluster": {"ae\u0301\x7f👨‍👩‍👧‍👦\x7f🇩🇪\x7fn\x08b\r", "ab"},
		"left, right by clusters":   {"x👨‍👩‍👧‍👦y\x1b[D\x1b[D<\x1b[C>\r", "x<👨‍👩‍👧‍👦>y"},
		"home and end":              {"b\x01a\x05c\x1b[Hx\x1b[Fy\x1bOHz\x1b[1~0\x1b[4~9\r", "0zxabcy9"},
		"delete":                    {"abc\x01\x1b[3~\x04\r", "c"},
		"kill and bring back":       {"one two\x17\x15\x19\x19\r", "one one "},
		"kill to the end":           {"abc def\x01\x1bf\x0b\r", "abc"},
		"kill a line's end":         {"a\x1b\rb\x1b[A\x0b\r", "ab"},
		"words":                     {"größe über alles\x1bb\x1b[1;5D\x1bd\x19\x1b\x7f\r", "größe  alles"},
		"swap":                      {"ab\x14c\x02\x02\x14\r", "abc"},
		"NUL and unknown sequences": {"a\x00b\x1b[15~\x1b[I\x1b]0;t\x07\x1bP1$r\x1b\\\x1bOPc\r", "abc"},
		"Linux console F1":          {"a\x1b[[Ab\r", "ab"},
		"a sequence in pieces":      {"ab\x1b|[|D|x\r", "axb"},
		"a lone Escape":             {"ab\x1b||x\r", "abx"},
		"a character in pieces":     {"\xe4|\xb8|\x96!\r", "世!"},
		"a broken character":        {"\xe4\xb8||x\xff\r", "\ufffdx\ufffd"},
		"a character never ended":   {"\xe4||\r", "\ufffd"},
		"paste":                     {"\x1b[200~a\r\nb\rc\n\td\x00\x1b[31m\x1b[201~!\r", "a\nb\nc\n\td\x1b[31m!"},
		"paste in pieces":           {"\x1b[20|0~a\r|\nb\x1b|[201|~c\r", "a\nbc"},
		"a paste that never ends":   {"\x1b[200~abc\x03", "^C"},
		"several lines":             {"a\x1b\rb\r", "a\nb"},
		"up and down":               {"abc\x1b\rd\x1b[A1\x1b[B2\r", "abc1\nd2"},
		"up keeps the column":       {"abcdef\x1b\rx\x1b\rabcdef\x1b[A\x1b[A!\r", "abcdef!\nx\nabcdef"},
		"history":                   {"new\x1b[A\x1b[A\x1b[B\x1b[B!\r", "new!"},
		"older":                     {"\x1b[A\x1b[A\x1b[A\r", "first line"},
		"search":                    {"\x12ir\r", "first line"},
		"search further":            {"\x12line\x12\r", "first line"},
		"search, not found":         {"\x12line|X\r", "second line"},
		"search, given up":          {"draft\x12line\x07!\r", "draft!"},
		"search, then edit":         {"\x12second\x05!\r", "second line!"},
		"complete":                  {"/s\t\r", "/set "},
		"more":                      {"\"\"\"\ra\r\"\"\"\r", "\"\"\"\na\n\"\"\""},
		"end of input":              {"\x04", "EOF"},
		"not the end":               {"ab\x01\x04\r", "b"},
		"interrupt":                 {"abc\x03", "^C"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWindow(40, 10, strings.Split(c.keys, "|")...)
			h := lines{"first line", "second line"}
			e := &Editor{term: w, History: &h, Complete: func(string) []string { return []string{"/set "} },
				More: func(s string) bool { return strings.HasPrefix(s, `"""`) && strings.Count(s, `"""`) < 2 }}
			got, err := e.ReadLine("> ")
			switch {
			case errors.Is(err, io.EOF):
				got = "EOF"
			case errors.Is(err, ErrInterrupt):
				got = "^C"
			case err != nil:
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("the line is %q, want %q", got, c.want)
			}
			if w.began != 0 || w.col != 0 {
				t.Errorf("the terminal is held %d times, the cursor in column %d", w.began, w.col)
			}
		})
	}
}

// TestAhead: what is typed ahead of a prompt is there at the prompt, several lines of it too.
func TestAhead(t *testing.T) {
	w := newWindow(40, 10, "one\rtwo\rthr", "ee\r")
	e := &Editor{term: w}
	for _, want := range []string{"one", "two", "three"} {
		if got, err := e.ReadLine("> "); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

// TestScreens: what the window shows while a line is edited, the cursor as ▮.
func TestScreens(t *testing.T) {
	for name, c := range map[string]struct {
		cols, rows int
		keys       []string
		want       string
	}{
		"wide characters at the edge": {9, 6, []string{"世界世界世界"}, "> 世界世\n界世界▮"},
		"exactly full":                {8, 6, []string{"世界世"}, "> 世界世\n▮"},
		"cursor in a wide row":        {9, 6, []string{"世界世界", "\x1b[D\x1b[D"}, "> 世界▮世\n界"},
		"combining marks": {6, 6, []string{"e\u0301e\u0301e\u0301e\u0301e\u0301"},
			"> e\u0301e\u0301e\u0301e\u0301\ne\u0301▮"},
		"tabs":                   {20, 6, []string{"\x1b[200~a\tb\x1b[201~"}, "> a b▮"},
		"control characters":     {20, 6, []string{"\x1b[200~a\x1b[2Jb\x1b[201~"}, "> a␛[2Jb▮"},
		"several lines":          {20, 6, []string{"\x1b[200~one\ntwo\x1b[201~", "\x1b[A"}, "> one▮\n... two"},
		"higher than the window": {20, 4, []string{"\x1b[200~1\n2\n3\n4\n5\n6\x1b[201~"}, "... 4\n... 5\n... 6▮"},
		"up in a high text": {20, 4,
			[]string{"\x1b[200~1\n2\n3\n4\n5\n6\x1b[201~", "\x1b[A\x1b[A\x1b[A\x1b[A"}, "... 2▮\n... 3\n... 4"},
		"one row":              {20, 1, []string{"\x1b[200~1\n2\x1b[201~"}, "... 2▮"},
		"one column":           {1, 6, []string{"abc"}, "\na\nb\nc\n▮"},
		"completions":          {20, 6, []string{"/s", "\t"}, "> /s▮\n/set   /show  /stop"},
		"too many completions": {9, 6, []string{"/s", "\t"}, "> /s▮\n/set\n/show\n/stop"},
		"completions go again": {20, 6, []string{"/s", "\t", "x"}, "> /sx▮"},
		"search":               {30, 6, []string{"\x12", "wor"}, "(search: wor) hello ▮world"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWindow(c.cols, c.rows, c.keys...)
			e := &Editor{term: w, History: &lines{"hello world"},
				Complete: func(string) []string { return []string{"/set", "/show", "/stop"} }}
			if _, err := e.ReadLine("> "); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatal(err)
			}
			if w.col == w.cols {
				t.Errorf("the cursor hangs behind the last column")
			}
			line := w.cells[w.row]
			for len(line) < w.col {
				line = append(line, " ")
			}
			w.cells[w.row] = append(line[:w.col:w.col], append([]string{"▮"}, line[min(w.col, len(line)):]...)...)
			if got := strings.ReplaceAll(w.shown(), "▮ ", "▮"); got != strings.ReplaceAll(c.want, "▮ ", "▮") {
				t.Errorf("the window shows\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestResize: after the window has got another size the line stands there once, whole.
func TestResize(t *testing.T) {
	w := newWindow(40, 8, "ein Satz mit 世界, der umbricht", "!", "\r")
	w.resize = map[int][2]int{1: {12, 8}, 2: {60, 8}}
	e := &Editor{term: w}
	line, err := e.ReadLine("> ")
	if err != nil || line != "ein Satz mit 世界, der umbricht!" {
		t.Errorf("%q, %v", line, err)
	}
	if got := w.shown(); got != "> ein Satz mit 世界, der umbricht!" {
		t.Errorf("the window shows\n%s", got)
	}
}

// TestLongTextLeaves: of a message that is higher than the window its beginning and its size stay, not thousands of
// rows.
func TestLongTextLeaves(t *testing.T) {
	text := strings.Repeat("row\n", 5000) + "end"
	w := newWindow(40, 10, "\x1b[200~"+text+"\x1b[201~", "\r")
	line, err := (&Editor{term: w}).ReadLine("> ")
	if err != nil || line != text {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	all := strings.Join(append(w.scrolled, w.shown()), "\n")
	if !strings.Contains(all, "[4,996 more rows, 20,003 bytes in all]") || strings.Count(all, "row") > 40 {
		t.Errorf("what stays is\n%s", all)
	}
}

// TestRowsFit: whatever is edited, no row is wider than the window (unless one character is), every byte of the text is
// in one row, and the cursor is in the window.
func TestRowsFit(t *testing.T) {
	clusters := []string{"a", " ", "世", "e\u0301", "👨‍👩‍👧‍👦", "🇩🇪", "\n", "\t", "ש\u05c1", "น้ำ", "\x1b", "\u200d",
		"\u0301", "क्ष", "\ufffd"}
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Join(rapid.SliceOf(rapid.SampledFrom(clusters)).Draw(t, "text"), "")
		at := rapid.IntRange(0, len(s)).Draw(t, "at")
		for at < len(s) && s[at]&0xc0 == 0x80 {
			at++
		}
		cols := rapid.IntRange(2, 30).Draw(t, "cols")
		l := arrange("> ", more, s, at, cols)
		if len(l.rows) != len(l.starts) || len(l.rows) != len(l.widths) || l.row >= len(l.rows) ||
			!strings.HasPrefix(l.rows[l.row], l.head) {
			t.Fatalf("%q at %d in %d: %+v", s, at, cols, l)
		}
		for i, w := range l.widths {
			if w > max(cols, 4) {
				t.Fatalf("row %d of %q is %d columns wide, the window %d", i, s, w, cols)
			}
			if i > 0 && l.starts[i] < l.starts[i-1] {
				t.Fatalf("%q: rows begin at %v", s, l.starts)
			}
		}
	})
}

// FuzzDecoder: whatever comes, it is consumed, the names are names, and texts are UTF-8 without control characters.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("a\x1b[200~b\r\n\x1b[201~\x1b[1;5D\xe4\xb8"), 3)
	f.Add([]byte("\x1b]0;x\x07\x1bOA\x1b[[A\x1b\x1b\x00\xff"), 1)
	f.Fuzz(func(t *testing.T, in []byte, piece int) {
		var d decoder
		var buf []byte
		piece = max(piece%16, 1)
		for len(in) > 0 || len(buf) > 0 {
			n := min(piece, len(in))
			paused := n == 0
			buf, in = append(buf, in[:n]...), in[n:]
			for {
				pasting := d.pasting
				k, used := d.next(buf, paused)
				if used > len(buf) || used == 0 && k.name != "" {
					t.Fatalf("%q: %+v, %d bytes", buf, k, used)
				}
				if k.text != strings.ToValidUTF8(k.text, "?") || strings.Contains(k.text, "\x00") {
					t.Fatalf("%q: %+v", buf, k)
				}
				if !pasting && k.name == "text" &&
					strings.ContainsFunc(k.text, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
					t.Fatalf("%q: control characters in %+v", buf, k)
				}
				if used == 0 {
					if d.pasting && strings.HasPrefix(pasteEnd, string(buf)) {
						buf = nil // the closing bracket is waited for, however slow the line
					}
					if paused && len(buf) > 0 {
						t.Fatalf("%q is never consumed", buf)
					}
					break
				}
				buf = buf[used:]
			}
		}
	})
}
