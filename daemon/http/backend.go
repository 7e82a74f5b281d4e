package httpd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Daemon is the rest of the daemon, as HTTP handlers use it. Safe from any goroutine.
type Daemon interface {
	// Model, Named, Models, Facts, Info, Health and Detokenize are those of api.Backend.
	Model() string
	Named(name string) bool
	Models() []wire.ServedModel
	Facts() *api.Facts
	Info() wire.Info
	Health() wire.Health
	Detokenize(tokens []int32) ([]byte, error)

	// Ready reports whether the model is loaded. LoadProgress is the fraction of it that is.
	Ready() bool
	LoadProgress() float64
	// Await waits for the model as requests do (--while-loading). It returns an *api.Error, or the cause of ctx's end.
	Await(ctx context.Context) error
	// Render and Tokenize return the prompt of a request of owner, and the tokens of a text. The model is loaded.
	Render(owner uint32, r *wire.Request) (*api.Prompt, error)
	Tokenize(text string, special, markers bool) ([]int32, error)

	// CancelNamed ends the requests of owner with this id, or with one of the ids of further answers (n > 1): id-1,
	// id-2, … EndThinkNamed ends their thinking. Both report whether there is one.
	CancelNamed(owner uint32, id string) bool
	EndThinkNamed(owner uint32, id string) bool

	// Connect opens a connection to the poller in the name of a client.
	Connect(peer ipc.Peer) (net.Conn, error)
	// LeaveOut keeps the notes of requests that follow over a connection, until they are taken or forget is called.
	LeaveOut(requests []*wire.Request) (forget func())
}

// Of a stream whose model is being loaded.
const (
	TellLoadEvery = time.Second     // between two reports of how much is loaded
	WaitsForLoad  = "model_loading" // the reason of the wait, as why has it
)

// backend is the api.Backend of a daemon. Each Start opens a connection to the poller in its client's name, so that
// HTTP requests are queued, paused and cancelled by the same code as those of framed clients.
type backend struct {
	s *Server
	Daemon
}

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
	forget := b.LeaveOut(requests)
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
	conn, err := b.Connect(peer)
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
		e := ipc.DisplacedError(b.s.Config.MaxSessions)
		b.s.Metrics.Rejected(string(e.Code))
		relayed(ctx)
		return (*api.Error)(&e)
	case errors.As(err, &refused):
		e := refused.Event()
		e.RetryAfter = time.Second
		b.s.Metrics.Rejected(string(e.Code))
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
				s.ev = wire.Event{Kind: wire.EventProgress, Progress: wire.Progress{Waiting: WaitsForLoad,
					Loaded: s.b.LoadProgress(), Elapsed: time.Since(s.began)}}
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
		s.waits = s.conn.SetReadDeadline(time.Now().Add(TellLoadEvery)) == nil
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

func (b backend) Cancel(ctx context.Context, id string) bool { return b.CancelNamed(b.Owner(ctx), id) }

func (b backend) EndThink(ctx context.Context, id string) bool {
	return b.EndThinkNamed(b.Owner(ctx), id)
}

// Await waits for the model. The error is an *api.Error.
func (b backend) Await(ctx context.Context) error {
	err := b.Daemon.Await(ctx)
	if refused := (*api.Error)(nil); err == nil || errors.As(err, &refused) {
		return err
	}
	return b.lost(ctx, err)
}

func (b backend) Render(ctx context.Context, r *wire.Request) (*api.Prompt, error) {
	if err := b.Await(ctx); err != nil {
		return nil, err
	}
	return b.Daemon.Render(b.Owner(ctx), r)
}

func (b backend) Tokenize(ctx context.Context, text string, special, markers bool) ([]int32, error) {
	if err := b.Await(ctx); err != nil {
		return nil, err
	}
	return b.Daemon.Tokenize(text, special, markers)
}

// traceparentKey is the key of a client's traceparent in the context of an HTTP request.
type traceparentKey struct{}

// withTraceparent adds the header's value to ctx, unless it is malformed: then the W3C says to ignore it.
func withTraceparent(ctx context.Context, header string) context.Context {
	if !wire.ValidTraceparent(header) {
		return ctx
	}
	return context.WithValue(ctx, traceparentKey{}, header)
}

func traceparentOf(ctx context.Context) string {
	s, _ := ctx.Value(traceparentKey{}).(string)
	return s
}
