// Package chat is the conversation of `uma-cli`: the loop that reads a line, runs a /command or asks the daemon, and
// shows the answer; the settings of /set; conversation files; the history of typed lines.
//
// All of its inputs and outputs are in Config, so a test drives it with a reader, a buffer and a channel of signals.
//
// # Ctrl-C
//
// At the prompt the line editor has the terminal in raw mode and reports Ctrl-C as ErrInterrupt. While an answer
// runs the terminal is in its ordinary mode and Ctrl-C is a SIGINT: the first cancels the answer on the daemon and
// waits for its end event (which comes within a step), the second stops waiting.
//
// # Ctrl-\
//
// While an answer runs Ctrl-\ is a SIGQUIT: it ends the thinking, and the answer comes.
package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Config has a chat's inputs, outputs and settings.
type Config struct {
	Dial       func(context.Context) (*wireclient.Client, error)
	In         LineReader
	Out        *ui.Terminal
	Interrupts <-chan os.Signal // SIGINT while an answer runs
	EndThink   <-chan os.Signal // SIGQUIT while an answer runs: it stops thinking and answers; nil = never
	Settings   Settings
	Quiet      func() (restore func()) // called around an answer (ui.Quiet); nil = nothing to do
}

// Chat is one conversation. Run it once.
type Chat struct {
	cfg      Config
	settings Settings
	client   *wireclient.Client
	info     *reports.Info
	messages []wire.Message // user and assistant in turn; the system text is in settings
	totals   totals
	last     *wire.EOS
	lastID   string                                                         // of the request of the last answer
	ticker   func(aside *ui.Terminal) (ticks <-chan time.Time, stop func()) // Ticker; tests have one that stands still
}

// totals add up a session for /stats.
type totals struct {
	answers, prompt, cached, completion, think int
	decodeTokens                               int // those decodeSeconds were spent on: all but each answer's first
	decodeSeconds                              float64
}

// New is a chat over cfg.
func New(cfg Config) *Chat {
	return &Chat{cfg: cfg, settings: cfg.Settings, ticker: Ticker}
}

// errLeave ends the loop, after /bye.
var errLeave = errors.New("leave")

// Run talks until the user leaves. It fails only when there is no daemon at the start or the terminal is gone.
func (c *Chat) Run(ctx context.Context) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer func() { c.client.Close() }()
	c.greet()
	hinted := false
	for {
		line, err := c.cfg.In.ReadLine(">>> ")
		c.cfg.Out.CursorMoved()
		switch {
		case errors.Is(err, ErrInterrupt):
			if strings.TrimSpace(line) == "" && !hinted {
				hinted = true
				c.say("Ctrl-D or /bye leaves; Ctrl-C cancels a running answer.")
			}
			continue
		case errors.Is(err, io.EOF):
			return c.cfg.Out.FreshLine()
		case err != nil:
			return fmt.Errorf("read the terminal: %w", err)
		}
		hinted = false
		err = c.handle(ctx, line)
		switch {
		case errors.Is(err, errLeave):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			c.cfg.Out.FreshLine()
			c.cfg.Out.Println(c.cfg.Out.Red("error: ") + ui.Sanitize(err.Error()))
			if hint := Hint(err, true); hint != "" {
				c.say(hint)
			}
		}
	}
}

// handle executes one line.
func (c *Chat) handle(ctx context.Context, line string) error {
	if strings.TrimSpace(line) == "" {
		return nil
	}
	if strings.HasPrefix(line, "/") && !strings.Contains(strings.TrimSpace(line), "\n") {
		return c.command(strings.TrimSpace(line))
	}
	text := strings.TrimSpace(unquote(line))
	switch {
	case text == "":
		return nil
	case strings.Contains(text, "\x00"):
		return errors.New("the message is not text: it holds a NUL byte")
	case !utf8.ValidString(text):
		return errors.New("the message is not valid UTF-8; is the terminal set to another encoding?")
	case len(text) > wire.MaxFrameBytes:
		return fmt.Errorf("the message has %s bytes; the maximum is %s", ui.Count(len(text)),
			ui.Count(wire.MaxFrameBytes))
	}
	return c.ask(ctx, text)
}

func (c *Chat) greet() {
	name := "uma-serve"
	if c.info != nil && c.info.Model != nil {
		name = c.info.Model.Name
		if c.info.ContextTokens() > 0 {
			name += fmt.Sprintf(" (context %s tokens)", ui.Count(c.info.ContextTokens()))
		}
	}
	c.cfg.Out.Println(c.cfg.Out.Bold(ui.Sanitize(name)) + c.cfg.Out.Dim("   /? for help, /bye to leave"))
	if c.info != nil && c.info.Model != nil && !c.info.Model.ChatTemplate {
		why := "the model has no chat template"
		if c.info.Model.NoChat != "" {
			why = ui.Sanitize(c.info.Model.NoChat)
		}
		c.cfg.Out.Println(c.cfg.Out.Yellow("This model cannot chat: ") + why)
		c.say("It completes plain text: uma-cli run --raw \"Once upon a time\"")
	}
}

// say prints a dim line.
func (c *Chat) say(line string) { c.cfg.Out.Println(c.cfg.Out.Dim(line)) }

// connect dials unless there is a connection that works, and waits for a model that is still loading.
func (c *Chat) connect(ctx context.Context) error {
	if c.client != nil {
		if c.client.Err() == nil {
			return nil
		}
		c.client.Close()
	}
	conn, err := c.cfg.Dial(ctx)
	if err != nil {
		return err
	}
	c.client = conn
	if err := WaitReady(ctx, conn, c.cfg.Interrupts, c.cfg.Out); err != nil {
		return err
	}
	info, err := conn.Info(ctx)
	if err != nil {
		return err
	}
	c.info = info
	return nil
}

// ask sends the conversation with one more message and shows the answer. The message joins the conversation with
// its answer, or with the part of it that came before a cancel; without an answer it is left out and can be fetched
// back with the arrow key.
func (c *Chat) ask(ctx context.Context, text string) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	messages := append(c.messages[:len(c.messages):len(c.messages)], wire.Message{Role: "user", Content: text})
	if c.settings.System != "" {
		messages = append([]wire.Message{{Role: "system", Content: c.settings.System}}, messages...)
	}
	req := c.settings.Request()
	req.Messages, req.Progress = messages, true
	out := c.cfg.Out
	r := &Renderer{Out: out, Aside: out, ShowThinking: !c.settings.HideThinking, EndKey: c.cfg.EndThink != nil}
	ticks, stopTicks := c.ticker(out)
	defer stopTicks()
	r.Ticks = ticks
	restore := func() {}
	if c.cfg.Quiet != nil {
		restore = c.cfg.Quiet()
	}
	r.Begin()
	err := Stream(ctx, c.client, &req, c.cfg.Interrupts, c.cfg.EndThink, r.Event)
	r.Stop()
	if errors.Is(err, wireclient.ErrClosed) && r.Empty() {
		// The daemon was restarted since the last message, and sent no part of this answer.
		if err = c.connect(ctx); err == nil {
			r.Begin()
			err = Stream(ctx, c.client, &req, c.cfg.Interrupts, c.cfg.EndThink, r.Event)
		}
	}
	r.Stop()
	restore()
	interrupted := errors.Is(err, ErrInterrupt)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	if interrupted && r.End == nil {
		out.Println(out.Dim("[cancelled]"))
	}
	if answer := r.Answer(); strings.TrimSpace(answer.Content) != "" ||
		(r.End != nil && !interrupted && err == nil && r.End.Reason != wire.Cancelled) {
		c.messages = append(c.messages, wire.Message{Role: "user", Content: text}, answer)
	}
	if r.End != nil {
		c.count(r.End)
		if why := ReasonText(r.End); why != "" {
			c.say(why)
		}
		if thought := ThinkText(r.End); thought != "" {
			c.say(thought)
		}
		c.say(EndText(r.End, c.contextTokens()))
		out.Println("")
	}
	if interrupted {
		return nil
	}
	return err
}

func (c *Chat) count(e *wire.EOS) {
	c.last, c.lastID = e, e.ID
	c.totals.answers++
	c.totals.prompt += e.Usage.PromptTokens
	c.totals.cached += e.Usage.CachedTokens
	c.totals.completion += e.Usage.CompletionTokens
	c.totals.think += e.Usage.ThinkTokens
	if e.TokensPerSecond() > 0 {
		c.totals.decodeTokens += e.Usage.CompletionTokens - 1
		c.totals.decodeSeconds += e.Timings.Decode.Seconds()
	}
}

func (c *Chat) contextTokens() int {
	if c.info == nil {
		return 0
	}
	return c.info.ContextTokens()
}

// Hint advises what to do about an error, "" when the error text says it. inChat selects commands instead of flags.
func Hint(err error, inChat bool) string {
	var refused *wireclient.ServerError
	switch {
	case errors.Is(err, wireclient.ErrNoDaemon):
		return NoDaemonHint
	case errors.Is(err, wireclient.ErrClosed) && inChat:
		return "The daemon ended or dropped the connection. Your conversation is kept; the next message connects again."
	case !errors.As(err, &refused):
		return ""
	}
	switch refused.Code {
	case wire.ContextLength:
		if inChat {
			return "Start a new conversation with /clear (after /save FILE), or run the daemon with a larger " +
				"--ctx-size."
		}
		return "Send less text, or run the daemon with a larger --ctx-size."
	case wire.QueueLimit, wire.SessionLimit:
		if refused.RetryAfter > 0 {
			return "The daemon is busy. Try again in " + ui.Duration(refused.RetryAfter) + "."
		}
		return "The daemon is busy. Try again in a moment."
	case wire.FrameTooLarge, wire.PromptTooLarge:
		return "Send less text; the daemon's --max-frame-bytes and --max-prompt-bytes set the limits."
	case wire.ShuttingDown:
		return "The daemon is stopping. Start it again, or wait until the service manager restarts it."
	}
	return ""
}

// NoDaemonHint says how to start a daemon.
const NoDaemonHint = `Start one:
  uma-serve -m model.gguf &               in this terminal
  systemctl --user start uma-serve        as a service
Another socket: --socket PATH, or UMA_HOST=unix:///path`
