package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// openAI answers POST /v1/chat/completions and /v1/completions. Each request goes over a connection of its own to the
// poller, in its client's name, and its events come back as chunks: what holds for a framed client (queue, namespace,
// pausing while it does not read, cancelling when it goes) holds for this one by the same code.
func (s *Server) openAI(chat bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := completion{Server: s, w: w, ctx: r.Context(), rc: http.NewResponseController(w)}
		body, err := io.ReadAll(r.Body) // in memory: see bounded
		if err != nil {
			c.fail(&wire.Error{Code: wire.BadRequest, Message: "the body did not come whole: " + err.Error()})
			return
		}
		id := openAIID(chat)
		payload, wants, err := wire.ParseOpenAI(&c.parser, id, body, chat)
		if bad := (*wire.RequestError)(nil); errors.As(err, &bad) {
			ev := bad.Event()
			c.fail(&ev)
			return
		}
		c.wants = wants
		c.answer = wire.OpenAIAnswer{ID: id, Model: s.modelName(), Created: time.Now(), Chat: chat}
		c.run(wire.AppendFrame(nil, payload))
	}
}

// openAIID is the answer's id, and that of the request that asks for it: a client that wonders (uma-cli why) knows no
// other.
func openAIID(chat bool) string {
	var b [12]byte
	rand.Read(b[:])
	if chat {
		return "chatcmpl-" + hex.EncodeToString(b[:])
	}
	return "cmpl-" + hex.EncodeToString(b[:])
}

// modelName is what answers call the model.
func (s *Server) modelName() string {
	if m := s.model.Load(); m != nil {
		return m.info.Name
	}
	return ""
}

// completion is one request of OpenAI's API on its way.
type completion struct {
	*Server
	w      http.ResponseWriter
	rc     *http.ResponseController
	ctx    context.Context
	parser wire.Parser
	answer wire.OpenAIAnswer
	wants  wire.OpenAIWants

	out   []byte // chunks that are not written yet
	begun bool   // the status has gone out
	done  bool   // so has the end
}

// run asks, and writes what comes.
func (c *completion) run(frame []byte) {
	peer, ok := ipc.PeerOf(c.ctx)
	if !ok {
		c.fail(&wire.Error{Code: wire.InternalFailure, Message: "the client is not known"})
		return
	}
	conn, err := c.poller.Connect(peer)
	if err != nil {
		c.fail(c.lost(err))
		return
	}
	defer conn.Close()
	defer context.AfterFunc(c.ctx, func() { conn.Close() })() // a client that closes its connection cancels
	if _, err := conn.Write(frame); err != nil {
		c.fail(c.lost(err))
		return
	}
	if err := c.follow(conn); err != nil && !c.done {
		c.fail(c.lost(err))
	}
}

// follow reads events until the request's last. What one read brings goes out with one write.
func (c *completion) follow(conn net.Conn) error {
	split := wire.Splitter{Max: wire.MaxFrameBytes}
	in := make([]byte, 16<<10)
	var ev wire.Event
	for !c.done {
		n, err := conn.Read(in)
		for rest := in[:n]; !c.done; {
			var payload []byte
			var bad error
			if payload, rest, bad = split.Next(rest); bad != nil {
				return bad
			} else if payload == nil {
				break
			}
			if bad := c.parser.ParseEvent(payload, &ev); bad != nil {
				return bad
			}
			c.take(&ev)
		}
		if werr := c.flush(); werr != nil {
			return werr
		}
		if err != nil && !c.done {
			return err
		}
	}
	return nil
}

// take turns an event into chunks.
func (c *completion) take(ev *wire.Event) {
	switch ev.Kind {
	case wire.EventToken:
		if !c.wants.Stream {
			c.answer.Keep(&ev.Token)
			return
		}
		c.chunk(func(b []byte) []byte { return c.answer.AppendToken(b, &ev.Token) })
	case wire.EventProgress:
		if c.wants.Stream {
			c.chunk(func(b []byte) []byte { return c.answer.AppendProgress(b, &ev.Progress) })
		}
	case wire.EventError:
		c.fail(&ev.Error)
	case wire.EventEOS:
		switch {
		case ev.EOS.Reason == wire.Shutdown || ev.EOS.Reason == wire.Cancelled:
			c.fail(&wire.Error{Code: wire.ShuttingDown, Message: "the server stopped before the answer was complete"})
		case c.wants.Stream:
			c.chunk(func(b []byte) []byte { return c.answer.AppendLast(b, &ev.EOS) })
			if c.wants.Usage {
				c.chunk(func(b []byte) []byte { return c.answer.AppendUsage(b, &ev.EOS) })
			}
			c.out = append(c.out, "data: [DONE]\n\n"...)
			c.done = true
		default:
			c.out = append(c.answer.AppendWhole(nil, &ev.EOS), '\n')
			c.begin(http.StatusOK, "application/json")
			c.done = true
		}
	}
}

// chunk adds a server-sent event, if write appends anything.
func (c *completion) chunk(write func([]byte) []byte) {
	before := len(c.out)
	c.out = append(c.out, "data: "...)
	from := len(c.out)
	if c.out = write(c.out); len(c.out) == from {
		c.out = c.out[:before]
		return
	}
	c.out = append(c.out, "\n\n"...)
}

// begin sends the status, with the first bytes.
func (c *completion) begin(status int, contentType string) {
	if !c.begun {
		c.w.Header().Set("Content-Type", contentType)
		c.w.Header().Set("Cache-Control", "no-store")
		c.w.WriteHeader(status)
		c.begun = true
	}
}

// flush writes what waits. A client that takes nothing for --stall-timeout is given up.
func (c *completion) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	c.begin(http.StatusOK, "text/event-stream")
	if c.cfg.StallTimeout > 0 {
		c.rc.SetWriteDeadline(time.Now().Add(c.cfg.StallTimeout))
	}
	_, err := c.w.Write(c.out)
	if c.out = c.out[:0]; err == nil {
		err = c.rc.Flush()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.log.Debug("an HTTP client does not read: its request is ended")
	}
	return err
}

// fail ends the answer with an error: as its status, or as a last event where chunks have gone out.
func (c *completion) fail(e *wire.Error) {
	if c.done {
		return
	}
	c.done = true
	text := wire.AppendOpenAIError(nil, e)
	if c.begun || len(c.out) > 0 {
		c.out = append(append(append(c.out, "data: "...), text...), "\n\n"...)
		c.flush()
		return
	}
	if e.RetryAfter > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	status, _ := wire.OpenAIStatus(e.Code)
	c.out = append(text, '\n')
	c.begin(status, "application/json")
	c.flush()
}

// served is the list of models: one, or none while it loads.
func (s *Server) served() []wire.ServedModel {
	m := s.model.Load()
	if m == nil {
		return []wire.ServedModel{}
	}
	return []wire.ServedModel{{
		ID: m.info.Name, Object: "model", Created: s.start.Unix(), OwnedBy: "uma-serve",
		Meta: wire.ServedModelMeta{
			Context: m.caps.ContextTokens, TrainContext: m.info.TrainContext,
			Parameters: int64(m.info.Parameters), Bytes: int64(m.info.Bytes),
		},
	}}
}

// models answers GET /v1/models.
func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, http.StatusOK, mustJSON(wire.ServedModels{Object: "list", Data: s.served()}))
}

// oneModel answers GET /v1/models/{id}.
func (s *Server) oneModel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	for _, m := range s.served() {
		if m.ID == id {
			answerJSON(w, http.StatusOK, mustJSON(m))
			return
		}
	}
	refuseHTTP(w, http.StatusNotFound, fmt.Sprintf("model %.100q is not served here; GET /v1/models lists what is", id))
}
