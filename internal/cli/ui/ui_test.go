package ui

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func terminal(tty, colored bool) (*Terminal, *bytes.Buffer) {
	var b bytes.Buffer
	return New(&b, tty, colored, func() int { return 20 }), &b
}

// screen returns the content of a terminal of one line after carriage returns and backspaces.
func screen(s string) string {
	var line []rune
	at := 0
	for _, r := range s {
		switch r {
		case '\r':
			at = 0
		case '\b':
			at--
		default:
			if at == len(line) {
				line = append(line, r)
			} else {
				line[at] = r
			}
			at++
		}
	}
	return strings.TrimRight(string(line), " ")
}

// TestStatusOfAJob: a job in the background draws no status over what is in front, and text as always.
func TestStatusOfAJob(t *testing.T) {
	term, b := terminal(true, false)
	front := false
	term.front = func() bool { return front }
	term.Status("reading…")
	if b.Len() > 0 {
		t.Errorf("from the background: %q", b)
	}
	front = true
	term.Status("reading…")
	if got := screen(b.String()); got != "reading…" {
		t.Errorf("in front: %q", got)
	}
	front = false
	term.Text("answer")
	if got := screen(b.String()); got != "answer" {
		t.Errorf("text: %q", got)
	}
}

func TestStatus(t *testing.T) {
	term, b := terminal(true, false)
	term.Status("reading… 1 of 2")
	term.Status("reading…")
	if got := screen(b.String()); got != "reading…" {
		t.Errorf("a shorter status leaves %q", got)
	}
	term.Status(strings.Repeat("wide ", 10))
	if got := screen(b.String()); len([]rune(got)) != 19 {
		t.Errorf("a status of %d columns on a terminal of 20", len([]rune(got)))
	}
	term.Text("answer")
	if got := screen(b.String()); got != "answer" {
		t.Errorf("text over a status: %q", got)
	}
	term.Status("not behind text")
	if got := screen(b.String()); got != "answer" {
		t.Errorf("a status behind text: %q", got)
	}
	term.FreshLine()
	term.FreshLine()
	if got := b.String(); strings.Count(got, "\n") != 1 {
		t.Errorf("%q", got)
	}
	term.Status("x")
	term.ClearStatus()
	if strings.Contains(b.String(), "\x1b") {
		t.Errorf("escapes without colour: %q", b.String())
	}

	term, b = terminal(false, false)
	term.Status("nothing")
	term.Text("a\x1bb")
	if b.String() != "a\x1bb" {
		t.Errorf("off a terminal: %q", b.String())
	}
}

func TestColors(t *testing.T) {
	term, b := terminal(true, true)
	term.DimText("think\x1b[2J")
	if got := b.String(); got != "\x1b[2mthink␛[2J\x1b[22m" {
		t.Errorf("%q", got)
	}
	for name, style := range map[string]func(string) string{"dim": term.Dim, "bold": term.Bold, "red": term.Red,
		"green": term.Green, "yellow": term.Yellow} {
		if got := style("x"); !strings.HasPrefix(got, "\x1b[") || !strings.Contains(got, "x") {
			t.Errorf("%s: %q", name, got)
		}
	}
	plain, _ := terminal(true, false)
	for name, style := range map[string]func(string) string{"dim": plain.Dim, "bold": plain.Bold, "red": plain.Red,
		"green": plain.Green, "yellow": plain.Yellow} {
		if got := style("x"); got != "x" {
			t.Errorf("%s without colour: %q", name, got)
		}
	}
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false}, {map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, false},
		{map[string]string{"TERM": "dumb"}, false}, {map[string]string{"TERM": "xterm"}, true},
	} {
		if got := ColorWanted(func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}

// TestRedraw: a screen is drawn over the one before it, cut to the window, and what the window held is not painted
// over.
func TestRedraw(t *testing.T) {
	var b bytes.Buffer
	term := Window(&b, false, 10, 3)
	term.Redraw("a\nb\n")
	if got := b.String(); got != "\n\n\n\x1b[Ha\x1b[K\nb\x1b[K\x1b[J" {
		t.Errorf("%q", got)
	}
	b.Reset()
	term.Redraw("a row too long\n2\n3\n4\n")
	if got := b.String(); got != "\x1b[Ha row too…\x1b[K\n2\x1b[K\n3\x1b[K\x1b[J" {
		t.Errorf("%q", got)
	}
	term, piped := terminal(false, false)
	term.Redraw("a\n")
	term.Redraw("b\n")
	if got := piped.String(); got != "a\n\nb\n" {
		t.Errorf("%q", got)
	}
}

// TestFit: text is cut by the columns it takes, not by bytes or runes, and colours survive.
func TestFit(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 5, "short"}, {"longer", 5, "long…"}, {"世界世界", 6, "世界…"}, {"世界世界", 5, "世界…"},
		{"e\u0301e\u0301e\u0301", 2, "e\u0301…"},
		{"\x1b[2mlonger\x1b[22m", 5, "\x1b[2mlong…\x1b[22m"}, {"\x1b[2mfits\x1b[22m", 4, "\x1b[2mfits\x1b[22m"},
		{"x", 0, ""}, {"", 0, ""},
	} {
		if got := Fit(c.in, c.width); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

// TestColumns: the least important columns go first when a window is narrow.
func TestColumns(t *testing.T) {
	cols := []Column{{Head: "NAME"}, {Head: "AGE", Keep: 1}, {Head: "SIZE", Keep: 2}, {Head: "WHY", Keep: 3}}
	rows := [][]string{{"世界", "1 s", "12", "because of this"}, {"x", "off: a note that is long"}}
	plain := func(s string) string { return s }
	for width, want := range map[int]string{
		0:  "NAME  AGE  SIZE  WHY\n世界  1 s  12    because of this\nx     off: a note that is long\n",
		30: "NAME  SIZE  WHY\n世界  12    because of this\nx     off: a note that is long\n",
		12: "NAME\n世界\nx     off: …\n",
	} {
		if got := Columns(cols, rows, width, plain); got != want {
			t.Errorf("%d columns:\n%s", width, got)
		}
	}
}

func TestOpenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	term := Open(w)
	if term.IsTTY() || term.Dim("x") != "x" {
		t.Error("a pipe counts as a terminal")
	}
	term.Println("x")
	Quiet(w, nil, nil)()
	w.Close()
	if b, _ := io.ReadAll(r); string(b) != "x\n" {
		t.Errorf("%q", b)
	}
}

func TestSanitize(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\ttext": "plain\n\ttext", "世界 🙂": "世界 🙂", "\x1b[31mred\x07": "␛[31mred␇", "a\rb\bc\x00": "a␍b␈c␀",
		"\x7f": "␡", "\u009b31m": "\ufffd31m", "x\u202ey\u2066": "x\ufffdy\ufffd", "bad\xff": "bad\ufffd", "": "",
	} {
		if got := Sanitize(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Sanitize("an ordinary token") }); n != 0 {
		t.Errorf("%v allocations for ordinary text", n)
	}
}

func FuzzSanitize(f *testing.F) {
	f.Add("a\x1b[0m\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		out := Sanitize(s)
		for _, r := range out {
			if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || isBidi(r) {
				t.Fatalf("%q: %q is left", s, r)
			}
		}
		if Sanitize(out) != out {
			t.Fatalf("%q: not stable", s)
		}
	})
}

func TestFormat(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"}, {Bytes(1023), "1023 B"}, {Bytes(1024), "1.00 KiB"}, {Bytes(8 << 30), "8.00 GiB"},
		{Bytes(1<<20 - 1), "1.00 MiB"}, {Bytes(1 << 63), "8.00 EiB"}, {Bytes(1<<64 - 1), "16.0 EiB"},
		{Count(0), "0"}, {Count(999), "999"}, {Count(1000), "1,000"}, {Count(-1234567), "-1,234,567"},
		{Large(0), "0"}, {Large(512), "512"}, {Large(134_515_008), "135 M"}, {Large(7_615_616_512), "7.62 B"},
		{Large(999_999_999), "1.00 B"},
		{Duration(0), "0 µs"}, {Duration(840 * time.Microsecond), "840 µs"},
		{Duration(12340 * time.Microsecond), "12.3 ms"},
		{Duration(999600 * time.Microsecond), "1.00 s"}, {Duration(4210 * time.Millisecond), "4.21 s"},
		{Duration(185 * time.Second), "3 m 05 s"},
		{Duration(125 * time.Minute), "2 h 05 m"}, {Duration(75 * time.Hour), "3 d 03 h"},
		{Duration(-time.Second), "-1.00 s"},
		{Rate(0), "0.00"}, {Rate(35.23), "35.2"}, {Rate(-1234), "-1234"},
		{Bar(0.5, 4), "██░░"}, {Bar(-1, 2), "░░"}, {Bar(7, 2), "██"},
		{Spark([]int{0, 1, 8}), " ▂█"}, {Spark([]int{0, 1, 1000}), " ▁█"}, {Spark([]float64{}), ""},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	var table Table
	table.Row("a", "%d", 1)
	table.Row("left out", "%s", "")
	table.Gap()
	table.Row("größer", "x")
	if got := table.String(nil); got != "a       1\n\ngrößer  x\n" {
		t.Errorf("%q", got)
	}
}
