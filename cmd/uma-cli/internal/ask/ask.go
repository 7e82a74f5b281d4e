// Package ask implements `uma-cli run`: it joins a question from arguments, files and standard input, and prints the
// answer to a terminal, a file or a pipe.
package ask

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// maxInput is the limit of the text from files and standard input: the largest frame's size.
const maxInput = wire.MaxFrameBytes

// Options describe one question.
type Options struct {
	Settings     chat.Settings
	Words        []string  // the prompt on the command line
	Files        []string  // then the text of these
	Stdin        io.Reader // then this, to its end; nil = a terminal, nothing to read
	Raw          bool      // no chat template
	JSON         bool      // events as lines of JSON instead of text
	Stream       bool      // text as it comes
	ShowThinking bool
	Verbose      bool
	Timeout      time.Duration // 0 = none
	Out, Aside   *ui.Terminal  // the answer; thinking, progress and statistics
	Interrupts   <-chan os.Signal
	EndThink     <-chan os.Signal // ends the thinking; nil = never
}

// UsageError is a mistake of the caller.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Run asks and prints. It returns chat.ErrInterrupt after a signal cancelled the answer, whose received part is
// printed.
func Run(ctx context.Context, dial func(context.Context) (*wireclient.Client, error), o *Options) error {
	req, err := o.request()
	if err != nil {
		return UsageError{err}
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout,
			fmt.Errorf("not done within %v (--timeout); the answer was cancelled", o.Timeout))
		defer cancel()
	}
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	r := &chat.Renderer{Out: o.Out, Aside: o.Aside, ShowThinking: o.ShowThinking, EndKey: o.EndThink != nil}
	ticks, stopTicks := chat.Ticker(o.Aside)
	defer stopTicks()
	r.Ticks = ticks
	event := r.Event
	if o.JSON {
		event = func(ev *wire.Event) error {
			if ev.Kind == wire.EventEOS {
				end := ev.EOS
				r.End = &end
			}
			return o.printJSON(ev)
		}
	}
	stream := func() error {
		if !o.JSON {
			r.Begin()
			defer r.Stop()
		}
		return chat.Stream(ctx, c, req, o.Interrupts, o.EndThink, event)
	}
	err = stream()
	if refused, ok := errors.AsType[*wireclient.ServerError](err); ok && refused.Code == wire.ModelUnready {
		if err = chat.WaitReady(ctx, c, o.Interrupts, o.Aside); err == nil {
			err = stream()
		}
	}
	if refused, ok := errors.AsType[*wireclient.ServerError](err); ok && o.JSON {
		if jsonErr := o.printLine(wire.AppendError(nil, (*wire.Error)(refused))); jsonErr != nil {
			return jsonErr
		}
	}
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if !o.JSON && r.End.Reason != wire.Cancelled {
		if why := chat.ReasonText(r.End); why != "" && (o.Aside.IsTTY() || r.End.Reason != wire.Length) {
			o.Aside.Println(o.Aside.Dim(why))
		}
	}
	if o.Verbose {
		if thought := chat.ThinkText(r.End); thought != "" {
			o.Aside.Println(o.Aside.Dim(thought))
		}
		if miss := r.End.Usage.CacheMiss; miss != "" {
			o.Aside.Println(o.Aside.Dim("prompt cache: " + ui.Sanitize(miss)))
		}
		o.Aside.Println(o.Aside.Dim(chat.EndText(r.End, 0)))
	}
	switch r.End.Reason {
	case wire.Cancelled:
		return chat.ErrInterrupt
	case wire.Shutdown:
		return errors.New("the daemon was shut down before the answer was complete")
	}
	return nil
}

// request joins the question.
func (o *Options) request() (*wire.Request, error) {
	if o.Settings.Sampling.Logprobs > 0 && !o.JSON {
		return nil, errors.New("--logprobs needs --json: plain text has no place for them")
	}
	if o.Raw && o.Settings.System != "" {
		return nil, errors.New("--system needs the chat template, which --raw leaves out; write the instructions " +
			"into the prompt")
	}
	text, err := o.prompt()
	if err != nil {
		return nil, err
	}
	req := o.Settings.Request()
	req.Stream = o.Stream
	req.Progress = o.JSON || o.Aside.IsTTY()
	if o.Raw {
		req.Prompt = text
	} else {
		if o.Settings.System != "" {
			req.Messages = append(req.Messages, wire.Message{Role: "system", Content: o.Settings.System})
		}
		req.Messages = append(req.Messages, wire.Message{Role: "user", Content: text})
	}
	check := req
	check.ID = "check"
	return &req, chat.CheckRequest(&check)
}

// prompt joins words, files and the pipe. A raw prompt keeps every byte of a single source.
func (o *Options) prompt() (string, error) {
	var parts []string
	add := func(source string, text []byte) error {
		if len(text) > maxInput {
			return fmt.Errorf("%s has more than %d MiB of text, the most a request can hold", source, maxInput>>20+1)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return fmt.Errorf("%s is not text: it holds a NUL byte", source)
		}
		if !utf8.Valid(text) {
			return fmt.Errorf("%s is not valid UTF-8; convert it first, for example with iconv", source)
		}
		s := string(text)
		if !o.Raw {
			s = strings.TrimRight(s, "\r\n")
		}
		if strings.TrimSpace(s) != "" {
			parts = append(parts, s)
		}
		return nil
	}
	if err := add("the prompt", []byte(strings.Join(o.Words, " "))); err != nil {
		return "", err
	}
	for _, name := range o.Files {
		path := chat.ExpandHome(name)
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return "", fmt.Errorf("--file: %s: it is a directory; name a file in it", path)
		}
		f, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("--file: %w", err)
		}
		text, err := io.ReadAll(io.LimitReader(f, maxInput+1))
		f.Close()
		if err == nil {
			err = add(name, text)
		}
		if err != nil {
			return "", fmt.Errorf("--file: %w", err)
		}
	}
	if o.Stdin != nil {
		text, err := io.ReadAll(io.LimitReader(o.Stdin, maxInput+1))
		if err != nil {
			return "", fmt.Errorf("read standard input: %w", err)
		}
		if err := add("standard input", text); err != nil {
			return "", err
		}
	}
	if len(parts) == 0 {
		return "", errors.New(`there is no prompt: uma-cli run "your question", or text on standard input`)
	}
	return strings.Join(parts, "\n\n"), nil
}

// printJSON writes an event as the daemon wrote it, one line.
func (o *Options) printJSON(ev *wire.Event) error {
	switch ev.Kind {
	case wire.EventToken:
		return o.printLine(wire.AppendToken(nil, &ev.Token))
	case wire.EventProgress:
		return o.printLine(wire.AppendProgress(nil, &ev.Progress))
	case wire.EventEOS:
		return o.printLine(wire.AppendEOS(nil, &ev.EOS))
	}
	return nil
}

// printLine writes a frame without its length: JSON has no raw newline in it.
func (o *Options) printLine(frame []byte) error { return o.Out.Println(string(frame[4:])) }
