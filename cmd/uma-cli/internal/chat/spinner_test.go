package chat

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// row returns the content of a terminal of one row after carriage returns and "clear to the end of the row".
func row(s string) string {
	var cells []rune
	at := 0
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= '@' && r <= '~' })
			if rest[end] == 'K' {
				cells = cells[:at]
			}
			s = rest[end+1:]
			continue
		}
		r := []rune(s)[0]
		s = s[len(string(r)):]
		if r == '\r' {
			at = 0
			continue
		}
		cells = append(cells[:at], append([]rune{r}, cells[min(at+1, len(cells)):]...)...)
		at++
	}
	return string(cells)
}

// TestSpinner: while a prompt is computed the terminal shows a spinner, the tokens and the percentage, and clears them
// when the first token comes.
func TestSpinner(t *testing.T) {
	for _, colored := range []bool{true, false} {
		var b bytes.Buffer
		ticks := make(chan time.Time)
		out := ui.New(&b, true, colored, func() int { return 80 })
		r := &Renderer{Out: out, Aside: out, ShowThinking: true, Ticks: ticks}
		r.Begin()
		// A tick is read after the one before it was handled.
		tick := func(n int) {
			for range n + 1 {
				ticks <- time.Time{}
			}
		}
		show := func() string {
			r.mu.Lock()
			defer r.mu.Unlock()
			shown := row(b.String())
			if !colored { // blanks are all that can be written over a row
				shown = strings.TrimRight(shown, " ")
			}
			return shown
		}
		ticks <- time.Time{}
		if got := show(); got != "" {
			t.Errorf("after the first tick: %q", got)
		}
		tick(quietTicks)
		if got := show(); !strings.HasSuffix(got, " waiting for the daemon…") {
			t.Errorf("before anything is known: %q", got)
		}
		r.Event(&wire.Event{Kind: wire.EventProgress, Progress: wire.Progress{Position: 3}})
		if got := show(); !strings.HasSuffix(got, " waiting… place 3 in the queue") {
			t.Errorf("in the queue: %q", got)
		}
		r.Event(&wire.Event{Kind: wire.EventProgress, Progress: wire.Progress{Processed: 1024, Total: 4096}})
		first := show()
		if !strings.HasSuffix(first, " reading the prompt… 1,024 of 4,096 tokens (25 %)") {
			t.Errorf("at a quarter: %q", first)
		}
		tick(1)
		if next := show(); next == first || next[len("⠋"):] != first[len("⠋"):] {
			t.Errorf("%q does not move to another sign: %q", first, next)
		}
		r.Event(&wire.Event{Kind: wire.EventToken, Token: wire.Token{Text: []byte("Hi")}})
		if got := show(); got != "Hi" {
			t.Errorf("with the first token: %q", got)
		}
		tick(2)
		if got := show(); got != "Hi" {
			t.Errorf("the sign goes on behind the answer: %q", got)
		}
		r.Close()
	}
}

// TestSpinnerWithoutAnswer: it is cleared as well when no token comes: an error, a cancel.
func TestSpinnerWithoutAnswer(t *testing.T) {
	var b bytes.Buffer
	ticks := make(chan time.Time)
	out := ui.New(&b, true, true, func() int { return 80 })
	r := &Renderer{Out: out, Aside: out, Ticks: ticks}
	r.Begin()
	for range quietTicks + 2 {
		ticks <- time.Time{}
	}
	r.Stop()
	if got := row(b.String()); got != "" {
		t.Errorf("%q is left", got)
	}
	if !strings.Contains(b.String(), "waiting for the daemon") {
		t.Error("nothing was shown")
	}
	r.Begin() // the request is sent once more
	r.Close()
}
