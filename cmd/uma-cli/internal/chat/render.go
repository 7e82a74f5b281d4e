package chat

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Renderer shows the events of one answer as they come. Text goes to Out; thinking and the status line go to Aside,
// which is the same Terminal in a chat and stderr in `uma-cli run`.
type Renderer struct {
	Out          *ui.Terminal
	Aside        *ui.Terminal
	ShowThinking bool
	EndKey       bool // Ctrl-\ ends the thinking: the status line says so
	// Ticks move the spinner until the first token; nil = there is no spinner.
	Ticks <-chan time.Time

	Text  strings.Builder // the answer so far, unchanged
	Think strings.Builder // the thinking so far, unchanged
	End   *wire.EOS       // the end event, nil before it

	mu       sync.Mutex // of all that follows, and of the terminals: a tick comes between events
	waiting  bool       // no token has come yet
	ticked   int
	progress *wire.Progress // the newest, nil before the first
	stop     func()         // ends the goroutine of Begin, nil = there is none

	thinkTokens int
	thinkShown  bool // some thinking that is not white space stands on Aside
	outputShown bool
}

// Begin shows the status line until the first token, Stop or Close.
func (r *Renderer) Begin() {
	r.Stop()
	r.waiting, r.ticked, r.progress = true, 0, nil
	if r.Ticks == nil {
		return
	}
	over := make(chan struct{})
	var spinner sync.WaitGroup
	spinner.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-r.Ticks:
				r.tick()
			}
		}
	})
	r.stop = func() { close(over); spinner.Wait() }
}

// Stop removes the status line. From then on only events are shown.
func (r *Renderer) Stop() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
	if r.waiting {
		r.Aside.ClearStatus()
	}
	r.waiting = false
}

// quietTicks is the number of ticks before the status line appears, so that it does not flash before a quick answer.
const quietTicks = 2

// SpinEvery is the time between ticks.
const SpinEvery = 100 * time.Millisecond

// Ticker returns the Ticks of a Renderer that writes to aside; stop ends them.
func Ticker(aside *ui.Terminal) (ticks <-chan time.Time, stop func()) {
	if !aside.Animated() {
		return nil, func() {}
	}
	t := time.NewTicker(SpinEvery)
	return t.C, t.Stop
}

func (r *Renderer) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticked++
	r.wait()
}

// wait shows the request's progress before the first token.
func (r *Renderer) wait() {
	if !r.waiting || r.Ticks != nil && r.ticked < quietTicks {
		return
	}
	text := "waiting for the daemon…"
	if r.progress != nil {
		text = ProgressText(r.progress)
	}
	if r.Ticks != nil {
		frames := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
		text = string(frames[r.ticked%len(frames)]) + " " + text
	}
	r.Aside.Status(text)
}

// Event shows one event.
func (r *Renderer) Event(ev *wire.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ev.Kind != wire.EventProgress && r.waiting {
		r.waiting = false
		r.Aside.ClearStatus()
	}
	switch ev.Kind {
	case wire.EventProgress:
		progress := ev.Progress
		r.progress = &progress
		r.wait()
	case wire.EventToken:
		if ev.Token.Phase == wire.Thinking {
			r.thinkTokens++
			return r.thinking(string(ev.Token.Text))
		}
		return r.output(string(ev.Token.Text))
	case wire.EventEOS:
		end := ev.EOS
		r.End = &end
		if r.Think.Len() == 0 && len(end.Think) > 0 {
			if err := r.thinking(string(end.Think)); err != nil {
				return err
			}
		}
		if r.Text.Len() == 0 && len(end.Text) > 0 {
			return r.output(string(end.Text))
		}
	}
	return nil
}

func (r *Renderer) thinking(text string) error {
	r.Think.WriteString(text)
	if !r.ShowThinking {
		status := "thinking… " + plural(r.thinkTokens, "token")
		if r.EndKey && r.thinkTokens >= endKeyHint {
			status += `   Ctrl-\ ends it`
		}
		r.Aside.Status(status)
		return nil
	}
	if !r.thinkShown {
		// Models that were told not to think still write an empty thought.
		if text = strings.TrimLeft(text, " \t\r\n"); text == "" {
			return nil
		}
		r.thinkShown = true
	}
	return r.Aside.DimText(text)
}

func (r *Renderer) output(text string) error {
	r.Text.WriteString(text)
	if !r.outputShown {
		if r.Out.IsTTY() || r.Think.Len() > 0 || r.thinkTokens > 0 {
			text = strings.TrimLeft(text, "\r\n")
		}
		if text == "" {
			return nil
		}
		r.outputShown = true
		r.Aside.ClearStatus()
		if r.thinkShown {
			if err := r.Aside.FreshLine(); err != nil {
				return err
			}
			if err := r.Aside.Print("\n"); err != nil {
				return err
			}
		}
	}
	return r.Out.Text(text)
}

// endKeyHint is the number of tokens of hidden thinking from which on the status line names the key that ends it.
const endKeyHint = 64

// Empty reports whether no part of an answer has come yet.
func (r *Renderer) Empty() bool {
	return r.End == nil && r.thinkTokens == 0 && r.Think.Len() == 0 && r.Text.Len() == 0
}

// Close takes the status line away and ends the line of the answer.
func (r *Renderer) Close() error {
	r.Stop()
	r.Aside.ClearStatus()
	if r.thinkShown && !r.outputShown {
		if err := r.Aside.FreshLine(); err != nil {
			return err
		}
	}
	if !r.outputShown {
		return nil
	}
	return r.Out.FreshLine()
}

// Answer returns the assistant's message for the history: without the blank lines between thinking and answer.
func (r *Renderer) Answer() wire.Message {
	text := r.Text.String()
	if r.Think.Len() > 0 {
		text = strings.TrimLeft(text, "\r\n")
	}
	return wire.Message{Role: "assistant", Content: text, ReasoningContent: strings.TrimSpace(r.Think.String())}
}

// ProgressText returns the status line for a request that has no token yet.
func ProgressText(p *wire.Progress) string {
	if p.Position > 0 {
		return fmt.Sprintf("waiting… place %d in the queue", p.Position)
	}
	if p.Total <= 0 {
		return "reading the prompt…"
	}
	return fmt.Sprintf("reading the prompt… %s of %s tokens (%d %%)", ui.Count(p.Processed), ui.Count(p.Total),
		100*p.Processed/p.Total)
}

// EndText returns the line under an answer: how many tokens, how fast, and why it ended, unless it was the model's
// choice.
func EndText(e *wire.EOS, contextTokens int) string {
	parts := []string{plural(e.Usage.CompletionTokens, "token")}
	if e.Usage.ThinkTokens > 0 {
		parts[0] += fmt.Sprintf(" (%s thinking)", ui.Count(e.Usage.ThinkTokens))
	}
	if v := e.TokensPerSecond(); v > 0 {
		parts = append(parts, ui.Rate(v)+" tokens/s")
	}
	if e.Timings.TTFT > 0 {
		parts = append(parts, "first after "+ui.Duration(e.Timings.TTFT))
	}
	if e.Timings.Queue >= 100*time.Millisecond {
		parts = append(parts, "queued "+ui.Duration(e.Timings.Queue))
	}
	prompt := "prompt " + ui.Count(e.Usage.PromptTokens)
	if e.Usage.CachedTokens > 0 {
		prompt += fmt.Sprintf(" (%s cached", ui.Count(e.Usage.CachedTokens))
		if t := e.Usage.CacheTier; t != wire.TierNone && t != wire.TierDevice {
			prompt += ", from " + ui.Sanitize(t.String())
		}
		prompt += ")"
	}
	parts = append(parts, prompt)
	if used := e.Usage.PromptTokens + e.Usage.CompletionTokens; contextTokens > 0 && used*2 > contextTokens {
		parts = append(parts, fmt.Sprintf("context %d %% full", min(100*used/contextTokens, 100)))
	}
	return strings.Join(parts, " · ")
}

// ThinkText returns the line about the thinking of an answer, "" when there was none.
func ThinkText(e *wire.EOS) string {
	t := &e.Thought
	if t.Tokens == 0 && t.Ended == "" {
		return ""
	}
	how := ui.Sanitize(t.Ended)
	if text, ok := thinkEnds[t.Ended]; ok {
		how = text
	}
	return fmt.Sprintf("thought %s, %s, ended: %s", plural(t.Tokens, "token"), ui.Duration(t.Time), how)
}

// thinkEnds explains the ends of thinking that need it.
var thinkEnds = map[string]string{
	"natural": "by the model", "stalled": "stalled (the answer did not converge)",
	"overthinking": "overthinking (the thinking drifted)",
	"hard_cap":     "budget used up", "soft_cap": "past the soft budget", "user": "by you",
	"eog":    "the model stopped while thinking",
	"length": "cut off",
}

// ReasonText says why an answer ended, "" when the model ended it.
func ReasonText(e *wire.EOS) string {
	switch e.Reason {
	case wire.Stop:
		return ""
	case wire.Cancelled:
		return "[cancelled]"
	case wire.Length:
		if e.Usage.ThinkTokens > 0 && e.Usage.ThinkTokens == e.Usage.CompletionTokens {
			return "[cut off while thinking: max_tokens or the context is used up]"
		}
		return "[cut off: max_tokens or the context is used up]"
	case wire.Shutdown:
		return "[cut off: the daemon is shutting down]"
	}
	return "[ended: " + ui.Sanitize(string(e.Reason)) + "]"
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return ui.Count(n) + " " + what
}
