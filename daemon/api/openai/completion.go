package openai

import (
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/llamaform"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// completion is the state of one HTTP request, with a choice for each answer. Each answer is a request to the daemon,
// which queues, pauses and cancels it like one of a framed client; the prefix tree shares the prompt.
type completion struct {
	s *api.Server
	w *api.Writer
	// head takes the answer's headers, before the first write
	head http.ResponseWriter
	id   string // of the answer and of its first request, so that clients can pass it to why and cancel

	object
	stream  bool
	verbose bool // add "__verbose"
	stop    bool // the stop string is a part of the answer
	ids     bool // add the ids of the prompt's and the answer's tokens
	api.Telemetry
	choices []*choice
	byID    map[string]*choice
	open    int // choices that have not ended
	done    bool
}

func newCompletion(s *api.Server, w http.ResponseWriter, chat bool) *completion {
	c := &completion{s: s, w: s.NewWriter(w), head: w, byID: map[string]*choice{}}
	c.id = api.NewID("cmpl-")
	if chat {
		c.id = api.NewID("chatcmpl-")
	}
	w.Header().Set("X-Request-Id", c.id)
	c.object = object{chat: chat, id: c.id, model: s.Model(), created: s.Now(), fingerprint: fingerprint(s)}
	return c
}

// fingerprint identifies the build. It begins like llama-server's.
func fingerprint(s *api.Server) string { return "b-" + s.Version }

// want sets the fields that a body's options determine, also those of its request.
func (c *completion) want(o *options, req *wire.Request) {
	o.Telemetry.Of(req)
	c.stream, c.Telemetry, c.verbose = o.Stream, o.Telemetry, req.Verbose
	c.stop = o.IncludeStop || o.NoStopTrim
	c.ids, req.EveryToken = o.TokenIDs, o.TokenIDs
	c.usage = o.StreamOptions != nil && o.StreamOptions.IncludeUsage
}

// several appends n copies of req with different seeds to list, each with its choice.
func (c *completion) several(list []*wire.Request, req *wire.Request, n int) []*wire.Request {
	for i, r := range api.Answers(req, c.id, len(c.choices), n) {
		ch := &choice{index: len(c.choices), again: i > 0}
		if c.verbose && ch.index == 0 {
			ch.plain = &llamaform.Answer{Request: r}
		}
		if c.ids {
			ch.ids = &tokenIDs{request: r}
		}
		c.choices, c.byID[r.ID] = append(c.choices, ch), ch
		list = append(list, r)
	}
	return list
}

// run starts the requests and writes their answers.
func (c *completion) run(r *http.Request, requests []*wire.Request) {
	c.open = len(requests)
	c.s.Warn(c.head, requests[0])
	stream, err := c.s.Start(r.Context(), requests...)
	if err != nil {
		c.fail(api.AsError(err))
		return
	}
	defer stream.Close()
	c.w.Streams, c.w.Ping = c.stream, requests[0].Ping
	c.s.Follow(c.w, stream, func(ev *wire.Event) bool { c.take(r, ev); return !c.done })
}

// take handles an event: it writes or collects chunks.
func (c *completion) take(r *http.Request, ev *wire.Event) {
	ch := c.byID[ev.ID]
	if ch != nil && ch.plain != nil && ev.Kind == wire.EventToken && ev.Token.Phase != wire.InPrompt {
		ch.plain.Keep(&ev.Token)
	}
	if ch != nil && ev.Kind == wire.EventToken && ev.Token.Phase != wire.InPrompt {
		ch.keepID(&ev.Token)
	}
	switch {
	case ev.Kind == wire.EventError:
		c.fail((*api.Error)(&ev.Error))
	case ch == nil:
	case ev.Kind == wire.EventToken && ev.Token.Phase == wire.InPrompt:
		ch.prompt(&ev.Token)
	case ev.Kind == wire.EventToken && c.stream:
		ch.meter.Token(&ev.Token, c.s.Now())
		if part := c.token(ch, &ev.Token); part != nil {
			c.chunk(r, ch, part)
		}
	case ev.Kind == wire.EventToken:
		c.keep(ch, &ev.Token)
	case ev.Kind == wire.EventToolCall && c.stream:
		c.chunk(r, ch, c.toolCall(ch, &ev.ToolCall))
	case ev.Kind == wire.EventToolCall:
		ch.keepCall(&ev.ToolCall)
	case ev.Kind == wire.EventProgress && c.stream:
		if ch.meter.Progress(&ev.Progress); !c.Progress {
			return
		}
		o := c.chunkOf()
		if o.Progress = api.ProgressOf(&ev.Progress); c.PerToken {
			o.Timings = ch.meter.Timings()
		}
		c.w.Event("", o)
	case ev.Kind == wire.EventEOS:
		if e := api.Cut(&ev.EOS); e != nil {
			c.fail(e)
			return
		}
		c.end(r, ch, &ev.EOS)
	}
}

// chunk writes a part of a choice, before the first one its role or echo.
func (c *completion) chunk(r *http.Request, ch *choice, part *choicePart) {
	if !ch.begun {
		ch.begun = true
		first := c.first(ch)
		if first == nil && ch.ids != nil {
			first = part
		}
		if first != nil {
			o := c.chunkOf(first)
			if c.addPrompt(r.Context(), o, ch, first); first != part {
				c.w.Event("", o)
			}
		}
	}
	ch.addIDs(part)
	if c.PerToken && part.timings == nil {
		part.timings = ch.meter.Timings()
	}
	c.w.Event("", c.chunkOf(part))
}

// end ends a choice, and with the last one the answer.
func (c *completion) end(r *http.Request, ch *choice, e *wire.EOS) {
	if ch.eos == nil {
		eos := *e
		ch.eos = &eos
		c.open--
		c.addStop(r, ch, e.StopText)
	}
	if c.stream {
		part := c.last(ch)
		part.verbose = c.verbosely(r, ch)
		c.chunk(r, ch, part)
	}
	if c.open > 0 {
		return
	}
	c.done = true
	if !c.stream {
		o := c.whole(c.choices)
		o.Verbose = c.verbosely(r, c.choices[0])
		for i, ch := range c.choices {
			ch.addIDs(o.Choices[i])
			c.addPrompt(r.Context(), o, ch, o.Choices[i])
		}
		c.w.JSON(http.StatusOK, o)
		return
	}
	if c.usage {
		o := c.chunkOf()
		o.Usage, o.Timings = usageOf(c.choices), timingsOf(c.choices)
		c.w.Event("", o)
	}
	c.w.Text("[DONE]")
}

// addStop adds the stop string that ended a choice to its text, if the body asks for that.
func (c *completion) addStop(r *http.Request, ch *choice, text string) {
	if !c.stop || text == "" {
		return
	}
	t := &wire.Token{Phase: wire.Output, Text: []byte(text)}
	if !c.stream {
		c.keep(ch, t)
	} else if part := c.token(ch, t); part != nil {
		c.chunk(r, ch, part)
	}
}

// verbosely returns the first choice in llama-server's own form if the body asks for it with "verbose", else nil.
func (c *completion) verbosely(r *http.Request, ch *choice) *llamaform.Final {
	if ch.plain == nil {
		return nil
	}
	ch.plain.EOS = ch.eos
	return ch.plain.Final(r.Context(), c.s, false, true)
}

// fail ends the answer with an error: as its status or, after the first chunk, as a last event.
func (c *completion) fail(e *api.Error) {
	if c.done {
		return
	}
	c.done = true
	if c.w.Begun() {
		c.w.Event("", c.place().failure(e))
		c.w.Flush()
		return
	}
	c.place().fail(c.w, e)
}

// place returns the place of the prompt in the body.
func (o *object) place() place {
	if o.chat {
		return inMessages
	}
	return inPrompt
}

// object returns the fields that all chunks of an answer share.
type object struct {
	chat        bool
	usage       bool // a stream's last chunk has it, and the others have null
	id, model   string
	fingerprint string
	created     time.Time
}
