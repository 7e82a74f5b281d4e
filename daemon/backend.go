package daemon

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// backend is the api.Backend of a Server. Each Start opens a connection to the poller in its client's name, so that
// HTTP requests are queued, paused and cancelled by the same code as those of framed clients.
type backend struct{ *Server }

// maxStartBytes is the maximum size of all requests that one HTTP request becomes.
const maxStartBytes = 64 << 20

func (b backend) Start(ctx context.Context, requests ...*wire.Request) (api.Stream, error) {
	def := wire.DefaultRequest()
	var frames []byte
	for _, r := range requests {
		if r.Traceparent == "" {
			r.Traceparent = traceparentOf(ctx)
		}
		before := len(frames)
		frames = wire.AppendRequest(frames, r, &def)
		if len(frames)-before > wire.MaxFrameBytes || len(frames) > maxStartBytes {
			return nil, &api.Error{Code: wire.FrameTooLarge, Message: fmt.Sprintf(
				"the body asks for requests of more than %d bytes in all, or more than %d bytes each", maxStartBytes,
				wire.MaxFrameBytes)}
		}
	}
	forget := b.leftOut.put(requests)
	s, err := b.send(ctx, frames, len(requests))
	if err != nil {
		forget()
		return nil, err
	}
	s.forget = forget
	var cancels []byte
	for _, r := range requests {
		cancels = append(cancels, wire.AppendCancel(nil, r.ID)...)
	}
	s.unstop = api.OnStop(ctx, func() { s.conn.Write(cancels) }) // an error is that of a connection that has ended
	return s, nil
}

func (b backend) Embed(ctx context.Context, e *wire.Embed) (api.Stream, error) {
	frame := wire.AppendEmbed(nil, e)
	if len(frame) > wire.MaxFrameBytes {
		return nil, &api.Error{Code: wire.FrameTooLarge, Message: fmt.Sprintf("the request has more than %d bytes",
			wire.MaxFrameBytes)}
	}
	s, err := b.send(ctx, frame, 1)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// send opens a connection to the poller, sends the frames of so many requests and returns their events.
func (b backend) send(ctx context.Context, frames []byte, requests int) (*innerStream, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &innerStream{b: b, ctx: ctx, conn: conn, open: requests, split: wire.Splitter{Max: wire.MaxEventBytes},
		in: make([]byte, 16<<10), began: time.Now()}
	s.unhook = context.AfterFunc(ctx, func() { conn.Close() }) // a disconnect cancels
	if _, err := conn.Write(frames); err != nil {
		s.Close()
		return nil, b.lost(ctx, err)
	}
	return s, nil
}

// connect opens a connection to the poller for the client of ctx.
func (b backend) connect(ctx context.Context) (net.Conn, error) {
	peer, ok := ipc.PeerOf(ctx)
	if !ok {
		return nil, &api.Error{Code: wire.InternalFailure, Message: "the client is not known"}
	}
	conn, err := b.poller.Connect(peer)
	if err != nil {
		return nil, b.lost(ctx, err)
	}
	return conn, nil
}

// lost returns the error of an HTTP request whose connection to the poller cannot be opened or has ended with err.
func (b backend) lost(ctx context.Context, err error) *api.Error {
	var refused *wire.RequestError
	switch {
	case errors.Is(context.Cause(ctx), ipc.ErrDisplaced):
		e := ipc.DisplacedError(b.cfg.MaxSessions)
		b.metrics.Rejected(string(e.Code))
		relayed(ctx)
		return (*api.Error)(&e)
	case errors.As(err, &refused):
		e := refused.Event()
		e.RetryAfter = time.Second
		b.metrics.Rejected(string(e.Code))
		relayed(ctx)
		return (*api.Error)(&e)
	}
	return &api.Error{Code: wire.ShuttingDown, Message: "the server ended the request: " + err.Error()}
}

// innerStream is the events of one connection to the poller.
type innerStream struct {
	b      backend
	ctx    context.Context
	conn   net.Conn
	unhook func() bool
	unstop func() // nil: a stop does not end it
	forget func() // nil: no notes wait for its requests
	parser wire.Parser
	split  wire.Splitter
	in     []byte // read buffer
	rest   []byte // unparsed part of in
	ev     wire.Event
	open   int // requests that have not ended

	began time.Time
	waits bool // reading has a deadline: the model is being loaded
}

func (s *innerStream) Next() *wire.Event {
	for s.open > 0 {
		payload, rest, err := s.split.Next(s.rest)
		s.rest = rest
		switch {
		case err != nil:
		case payload != nil:
			if err = s.parser.ParseEvent(payload, &s.ev); err == nil {
				switch {
				case s.ev.Kind == wire.EventError && s.ev.ID == "":
					s.open = 0
				case s.ev.Kind == wire.EventError || s.ev.Kind == wire.EventEOS:
					s.open--
				}
				if s.ev.Kind == wire.EventError {
					relayed(s.ctx)
				}
				return &s.ev
			}
		default:
			var n int
			s.await()
			n, err = s.conn.Read(s.in)
			if s.rest = s.in[:n]; n > 0 {
				err = nil // a lasting error comes back with the next read
			}
			if s.waits && errors.Is(err, os.ErrDeadlineExceeded) {
				if s.b.Ready() {
					continue
				}
				s.ev = wire.Event{Kind: wire.EventProgress, Progress: wire.Progress{Waiting: waitsForLoad,
					Loaded: s.b.loadProgress(), Elapsed: time.Since(s.began)}}
				return &s.ev
			}
		}
		if err != nil {
			s.open = 0
			s.ev = wire.Event{Kind: wire.EventError, Error: wire.Error(*s.b.lost(s.ctx, err))}
			return &s.ev
		}
	}
	return nil
}

// await limits the next read while the model is loaded, so that Next can tell how far it is.
func (s *innerStream) await() {
	switch loading := !s.b.Ready(); {
	case loading:
		s.waits = s.conn.SetReadDeadline(time.Now().Add(tellLoadEvery)) == nil
	case s.waits:
		s.waits = s.conn.SetReadDeadline(time.Time{}) != nil
	}
}

func (s *innerStream) Ready() bool {
	return len(s.rest) >= 4 && uint64(len(s.rest)-4) >= uint64(binary.LittleEndian.Uint32(s.rest))
}

func (s *innerStream) Close() {
	s.unhook()
	if s.unstop != nil {
		s.unstop()
	}
	if s.forget != nil {
		s.forget()
	}
	s.conn.Close()
}

// question sends a control question and returns the report that answers it.
func (b backend) question(ctx context.Context, frame []byte) (json.RawMessage, error) {
	conn, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &innerStream{b: b, ctx: ctx, conn: conn, open: 1, split: wire.Splitter{Max: wire.MaxEventBytes},
		in: make([]byte, 16<<10), began: time.Now()}
	s.unhook = context.AfterFunc(ctx, func() { conn.Close() })
	defer s.Close()
	if _, err := conn.Write(frame); err != nil {
		return nil, b.lost(ctx, err)
	}
	for ev := s.Next(); ev != nil; ev = s.Next() {
		switch ev.Kind {
		case wire.EventReport:
			return ev.Report, nil
		case wire.EventError:
			return nil, (*api.Error)(&ev.Error)
		}
	}
	return nil, b.lost(ctx, io.ErrUnexpectedEOF)
}

func (b backend) Why(ctx context.Context, q wire.WhyQuestion) (json.RawMessage, error) {
	return b.question(ctx, wire.AppendWhyQuestion(nil, "http", &q))
}

func (b backend) KV(ctx context.Context, q wire.KVQuestion) (json.RawMessage, error) {
	return b.question(ctx, wire.AppendKVQuestion(nil, "http", &q))
}

func (b backend) Owner(ctx context.Context) uint32 {
	peer, _ := ipc.PeerOf(ctx)
	return peer.UID
}

func (b backend) Cancel(ctx context.Context, id string) bool {
	mine := b.sessions.named(b.Owner(ctx), id)
	for _, r := range mine {
		b.cancel(r)
	}
	return len(mine) > 0
}

func (b backend) EndThink(ctx context.Context, id string) bool {
	mine := b.sessions.named(b.Owner(ctx), id)
	for _, r := range mine {
		b.endThinking(r)
	}
	return len(mine) > 0
}

// named returns owner's requests with this id, or with one of the ids of further answers (n > 1): id-1, id-2, …
func (t *sessions) named(owner uint32, id string) (found []*request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, live := range t.live {
		if c.UID() != owner {
			continue
		}
		for _, r := range live {
			if rest, ok := strings.CutPrefix(r.wireID, id); ok &&
				(rest == "" || rest[0] == '-' && strings.Trim(rest[1:], "0123456789") == "") {
				found = append(found, r)
			}
		}
	}
	return found
}

// Facts returns the loaded model's properties, nil while it loads.
func (b backend) Facts() *api.Facts {
	m := b.model.Load()
	if m == nil {
		return nil
	}
	return report.LoadedFacts(b.cfg, m, b.file())
}

func (b backend) Info() wire.Info     { return b.info() }
func (b backend) Health() wire.Health { return b.health() }

// Model returns the model's name in answers; "" while it loads, unless a front has named it.
func (b backend) Model() string {
	if m := b.model.Load(); m != nil {
		return m.Info.Name
	}
	if e := b.parts.engine; e != nil && !e.start.FileName {
		return e.start.Model
	}
	return ""
}

// Named reports whether the model has this name, also with ollama's tag.
func (b backend) Named(name string) bool {
	return strings.EqualFold(strings.TrimSuffix(name, ":latest"), b.Model())
}

// Await waits for the model as requests do (--while-loading).
func (b backend) Await(ctx context.Context) error {
	if b.model.Load() != nil {
		return nil
	}
	if b.cfg.WhileLoading == config.LoadingRefuse {
		return (*api.Error)(b.stillLoading())
	}
	select {
	case <-b.opened.done:
	case <-ctx.Done():
		return b.lost(ctx, context.Cause(ctx))
	}
	if b.model.Load() == nil {
		e := *b.opened.failure
		return (*api.Error)(&e)
	}
	return nil
}

// Models lists the loaded model.
func (b backend) Models() []wire.ServedModel {
	m := b.model.Load()
	if m == nil {
		return []wire.ServedModel{}
	}
	return []wire.ServedModel{{
		ID: m.Info.Name, Object: "model", Created: b.start.Unix(), OwnedBy: "uma-serve",
		Meta: (&api.Facts{Model: wire.InfoModel{ModelInfo: m.Info}, Context: m.Caps.ContextTokens}).Meta(),
	}}
}

// ready returns the loaded model, which it waits for.
func (b backend) ready(ctx context.Context) (*prepare.Model, error) {
	if err := b.Await(ctx); err != nil {
		return nil, err
	}
	return b.model.Load(), nil
}

func (b backend) Render(ctx context.Context, r *wire.Request) (*api.Prompt, error) {
	m, err := b.ready(ctx)
	if err != nil {
		return nil, err
	}
	text, tokens, e := m.Render(b.Owner(ctx), r)
	if e != nil {
		return nil, (*api.Error)(e)
	}
	return &api.Prompt{Text: text, Tokens: tokens}, nil
}

func (b backend) Tokenize(ctx context.Context, text string, special, markers bool) ([]int32, error) {
	m, err := b.ready(ctx)
	if err != nil {
		return nil, err
	}
	tokens, terr := m.Vocab.Tokenize(nil, text, special, markers)
	if terr != nil {
		return nil, api.Refuse(terr.Error())
	}
	return tokens, nil
}

func (b backend) Detokenize(tokens []int32) (text []byte, err error) {
	m := b.model.Load()
	if m == nil {
		return nil, (*api.Error)(b.stillLoading())
	}
	for _, t := range tokens {
		switch {
		case t < 0 || int(t) >= m.Vocab.Size():
			return nil, api.Refuse(fmt.Sprintf("token %d is not in the vocabulary of %d tokens", t, m.Vocab.Size()))
		case m.Vocab.IsControl(runtime.Token(t)):
			text = append(text, m.Vocab.Text(t)...)
		default:
			text = append(text, m.Vocab.Piece(t)...)
		}
	}
	return text, nil
}
