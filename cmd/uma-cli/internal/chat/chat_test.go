package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/internal/wireclient/clienttest"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

var rewrite = flag.Bool("rewrite", false,
	"write what the transcripts show into testdata; read the diff before you keep it")

// script is a LineReader that types lines and writes them into the transcript as the terminal would echo them.
type script struct {
	lines []string
	out   io.Writer
}

func (s *script) ReadLine(prompt string) (string, error) {
	if len(s.lines) == 0 {
		io.WriteString(s.out, prompt+"^D\n")
		return "", io.EOF
	}
	line := s.lines[0]
	s.lines = s.lines[1:]
	if line == "^C" {
		io.WriteString(s.out, prompt+"^C\n")
		return "", ErrInterrupt
	}
	line = strings.ReplaceAll(line, "⏎", "\n")
	io.WriteString(s.out, prompt+line+"\n")
	return line, nil
}

// model answers by the question.
type model struct {
	interrupts chan os.Signal
	endThink   chan os.Signal
	mu         sync.Mutex
	asked      [][]wire.Message
	left       *clienttest.Conn // answers nothing any more
}

// questions returns what the model was asked. A connection that broke may still be answering.
func (m *model) questions() [][]wire.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

func (m *model) answer(c *clienttest.Conn, r *clienttest.Request) {
	last := r.Messages[len(r.Messages)-1].Content
	m.mu.Lock()
	m.asked = append(m.asked, r.Messages)
	left := m.left == c
	if last == "leave" {
		m.left = c
	}
	m.mu.Unlock()
	if left {
		return
	}
	eos := wire.EOS{ID: r.ID, Reason: wire.Stop, Streamed: true,
		Usage: wire.Usage{PromptTokens: 20, CachedTokens: 12, CompletionTokens: 3},
		Timings: wire.Timings{TTFT: 42 * time.Millisecond, Prefill: 40 * time.Millisecond,
			Decode: 100 * time.Millisecond}}
	switch {
	case last == "think":
		for _, s := range []string{"\n", "Let me ", "see.\n"} {
			c.Token(r.ID, s, wire.Thinking)
		}
		c.Token(r.ID, "\n\nI thought.", wire.Output)
		eos.Usage.ThinkTokens, eos.Usage.CompletionTokens = 3, 4
		eos.Thought = wire.ThinkSummary{Tokens: 3, Time: 2100 * time.Millisecond, Ended: "converged", Probes: 2}
	case last == "ponder":
		for range 70 {
			c.Token(r.ID, "hm ", wire.Thinking)
		}
		m.endThink <- syscall.SIGQUIT
		<-r.EndThink
		c.Token(r.ID, "\n\n42", wire.Output)
		eos.Usage.ThinkTokens, eos.Usage.CompletionTokens, eos.Usage.CacheTier, eos.Usage.CacheMiss = 70, 71,
			wire.TierDisk, "diverged at token 12: another message"
		eos.Thought = wire.ThinkSummary{Tokens: 70, Time: 900 * time.Millisecond, Ended: "user"}
	case last == "how":
		c.Token(r.ID, fmt.Sprintf("%+v", r.Think), wire.Output)
	case last == "empty think":
		c.Token(r.ID, "\n\n", wire.Thinking)
		c.Token(r.ID, "\n\nNo need.", wire.Output)
	case last == "wait":
		c.Progress(wire.Progress{ID: r.ID, Position: 2})
		c.Progress(wire.Progress{ID: r.ID, Processed: 512, Total: 2048})
		c.Token(r.ID, "Done.", wire.Output)
	case last == "cancel me":
		c.Token(r.ID, "I was about to", wire.Output)
		m.interrupts <- os.Interrupt
		<-r.Cancelled
		eos.Reason = wire.Cancelled
	case last == "cancel before":
		m.interrupts <- os.Interrupt
		<-r.Cancelled
		eos.Reason = wire.Cancelled
		eos.Usage.CompletionTokens = 0
		eos.Timings = wire.Timings{}
	case last == "hang":
		m.interrupts <- os.Interrupt
		<-r.Cancelled
		m.interrupts <- os.Interrupt // no end event: the user stops waiting
		return
	case last == "long":
		c.Token(r.ID, "On and on", wire.Output)
		eos.Reason = wire.Length
	case last == "too long":
		c.Error(wire.Error{ID: r.ID, Code: wire.ContextLength,
			Message: "context_length_exceeded: n_prompt 9000, n_ctx 4096", NPrompt: 9000, NCtx: 4096})
		return
	case last == "busy":
		c.Error(wire.Error{ID: r.ID, Code: wire.QueueLimit, Message: "512 requests wait", RetryAfter: 2 * time.Second})
		return
	case last == "die":
		c.Token(r.ID, "half an ans", wire.Output)
		c.Close()
		return
	case last == "leave":
		c.EOS(eos)
		c.Close()
		return
	case last == "attack":
		c.Token(r.ID, "\x1b]0;owned\x07\x1b[2J\u202e", wire.Output)
	default:
		c.Token(r.ID, "You said: ", wire.Output)
		c.Token(r.ID, strings.ReplaceAll(last, "\n", "|"), wire.Output)
	}
	c.EOS(eos)
}

// whyAnswer answers /why.
func whyAnswer(f *wire.Frame) string {
	body, _ := json.Marshal(reports.WhyReport{Requests: []reports.WhyRequest{{Request: f.Why.Request,
		Number: 7, UID: 1000,
		Class: "interactive", State: "done", Ended: "stop",
		AgeMs: 5000, TookMs: 900, TTFTMs: 42,
		Usage: reports.WhyUsage{PromptTokens: 20, CachedTokens: 12, CacheTier: "device", CompletionTokens: 3},
		Decisions: []reports.Decision{{AtMs: 0.5, LastMs: 0.5, Times: 1, Reason: "wait_turn",
			Text: "It waits because others are before it."}}}, {Request: f.Why.Request}}})
	return string(body)
}

// converse runs a chat over lines and returns the transcript.
func converse(t *testing.T, lines []string, set func(*Settings), tty, colored bool) (string, *model) {
	t.Helper()
	m := &model{interrupts: make(chan os.Signal), endThink: make(chan os.Signal)}
	server := (&clienttest.Server{Answer: m.answer, Question: whyAnswer}).Start(t)
	var out bytes.Buffer
	c := New(Config{
		Dial:       func(ctx context.Context) (*wireclient.Client, error) { return wireclient.Dial(ctx, server.Path) },
		In:         &script{lines: lines, out: &out},
		Out:        ui.New(&out, tty, colored, func() int { return 60 }),
		Interrupts: m.interrupts, EndThink: m.endThink, Settings: DefaultSettings(),
	})
	c.ticker = func(aside *ui.Terminal) (<-chan time.Time, func()) {
		if !aside.Animated() {
			return nil, func() {}
		}
		return make(chan time.Time), func() {} // no answer of these is late
	}
	if set != nil {
		set(&c.settings)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Errorf("Run: %v", err)
	}
	return out.String(), m
}

// visible writes control characters so that a transcript file shows them.
func visible(s string) string {
	return strings.NewReplacer("\x1b", "␛", "\r", "␍", "\b", "␈").Replace(s)
}

// TestTranscripts replays testdata/*.txt: the lines after ">>> " are typed, the whole file is the expected screen.
// A first line "# tty color hide" says what the terminal is like. DIR stands for a temporary directory.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d transcripts, %v", len(files), err)
	}
	prompt := regexp.MustCompile(`(?m)^>>> (.*)$`)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			mode, _, _ := strings.Cut(string(want), "\n")
			var lines []string
			for _, line := range prompt.FindAllStringSubmatch(string(want), -1) {
				if line[1] != "^D" {
					lines = append(lines, strings.ReplaceAll(line[1], "DIR", dir))
				}
			}
			got, _ := converse(t, lines, func(s *Settings) { s.HideThinking = strings.Contains(mode, "hide") },
				strings.Contains(mode, "tty"), strings.Contains(mode, "color"))
			got = mode + "\n" + strings.ReplaceAll(visible(got), dir, "DIR")
			if *rewrite {
				// Typed lines must stay recognisable: a line break inside one is written ⏎.
				if err := os.WriteFile(file, []byte(escapeTyped(got, lines, dir)), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got = escapeTyped(got, lines, dir); got != string(want) {
				t.Errorf("the screen shows\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func escapeTyped(screen string, lines []string, dir string) string {
	for _, l := range lines {
		l = strings.ReplaceAll(l, dir, "DIR")
		screen = strings.ReplaceAll(screen, ">>> "+strings.ReplaceAll(l, "⏎", "\n")+"\n", ">>> "+l+"\n")
	}
	return screen
}

// TestHistorySent: the daemon receives the conversation; cancelled turns are kept and failed ones left out.
func TestHistorySent(t *testing.T) {
	_, m := converse(t, []string{"one", "cancel before", "too long", "cancel me", "think", "/set system Be kind.",
		"two", "/clear", "three"}, nil, false, false)
	last := func(i int) string {
		var b strings.Builder
		for _, msg := range m.questions()[i] {
			b.WriteString(msg.Role + "=" + msg.Content)
			if msg.ReasoningContent != "" {
				b.WriteString("(" + msg.ReasoningContent + ")")
			}
			b.WriteString(";")
		}
		return b.String()
	}
	turns := "user=one;assistant=You said: one;user=cancel me;assistant=I was about to;user=think;assistant=I " +
		"thought.(Let me see.);"
	if got, want := last(5), "system=Be kind.;"+turns+"user=two;"; got != want {
		t.Errorf("sent %q\nwant %q", got, want)
	}
	if got, want := last(6), "system=Be kind.;user=three;"; got != want {
		t.Errorf("after /clear: sent %q, want %q", got, want)
	}
}

// TestReconnect: a lost daemon causes an error, and the conversation is kept.
func TestReconnect(t *testing.T) {
	screen, m := converse(t, []string{"one", "die", "two"}, nil, false, false)
	if !strings.Contains(screen, "the next message connects again") {
		t.Errorf("no hint:\n%s", screen)
	}
	asked := m.questions()
	final := asked[len(asked)-1]
	// The half answer is kept, as after a cancel.
	if len(final) != 5 || final[3].Content != "half an ans" || final[4].Content != "two" {
		t.Errorf("sent %+v", final)
	}
}

// TestDaemonRestarted: a restart of the daemon between two messages is not noticed.
func TestDaemonRestarted(t *testing.T) {
	screen, m := converse(t, []string{"one", "leave", "two"}, nil, false, false)
	// The old daemon may have read the question before it ended: then there are four.
	asked := len(m.questions())
	if strings.Contains(screen, "error") || !strings.Contains(screen, "You said: two") || asked < 3 || asked > 4 {
		t.Errorf("asked %d times, the screen shows\n%s", asked, screen)
	}
}

func TestNoDaemon(t *testing.T) {
	c := New(Config{Dial: func(ctx context.Context) (*wireclient.Client,
		error) {
		return wireclient.Dial(ctx, "/nonexistent/uma.sock")
	},
		Out: ui.New(io.Discard, false, false, nil)})
	if err := c.Run(t.Context()); !errors.Is(err, wireclient.ErrNoDaemon) || Hint(err, true) != NoDaemonHint {
		t.Errorf("got %v", err)
	}
}

// TestNoEscapes: without colour a session prints no escape sequence; without a terminal no carriage return either.
func TestNoEscapes(t *testing.T) {
	lines := []string{"think", "wait", "cancel me", "attack", "/set", "/show", "/stats", "/?", "/nonsense", "too long"}
	screen, _ := converse(t, lines, nil, true, false)
	if strings.ContainsAny(screen, "\x1b\x07\u202e") {
		t.Errorf("an escape on a terminal without colour: %q", screen)
	}
	screen, _ = converse(t, lines[:3], nil, false, false)
	if strings.ContainsAny(screen, "\x1b\r\b") {
		t.Errorf("a control character off a terminal: %q", screen)
	}
}

func TestComplete(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "talk.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"":                     "",
		"hello /s":             "",
		"/s":                   "/set /show /save /stats",
		"/set te":              "temperature",
		"/set think ":          "auto off on minimal low medium high xhigh server default",
		"/set early_exit r":    "rpdi",
		"/w":                   "/why",
		"/set thinking ":       "show hide default",
		"/set priority b":      "background",
		"/show ":               "history",
		"/load " + dir + "/ta": dir + "/talk.json",
		"/bye x":               "",
	} {
		if got := strings.Join(Complete(line), " "); got != want {
			t.Errorf("%q completes to %q, want %q", line, got, want)
		}
	}
}
