package httpd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Daemon is the rest of the daemon, as HTTP handlers use it. Safe from any goroutine.
type Daemon interface {
	// Model, Models, Facts, Info, Health and Detokenize are those of api.Backend.
	Model() string
	Models() []reports.ServedModel
	Facts() *api.Facts
	Info() reports.Info
	Health() reports.Health
	Detokenize(tokens []int32) ([]byte, error)

	// Ready reports whether the model is loaded. LoadProgress is the fraction of it that is.
	Ready() bool
	LoadProgress() float64
	// Await waits for the model as requests do. It returns an *api.Error, or the cause of ctx's end.
	Await(ctx context.Context) error
	// Render and Tokenize return the prompt of a request of owner, and the tokens of a text. The model is loaded.
	Render(ctx context.Context, owner uint32, r *wire.Request) (*api.Prompt, error)
	Tokenize(text string, special, markers bool) ([]int32, error)

	// CancelNamed ends the requests of owner with this id, or with one of the ids of further answers (n > 1): id-1,
	// id-2, … EndThinkNamed ends their thinking. Both report whether there is one.
	CancelNamed(owner uint32, id string) bool
	EndThinkNamed(owner uint32, id string) bool

	// Adapters, SetScales, LoadAdapter and UnloadAdapter are those of api.Backend.
	Adapters() []reports.InfoAdapter
	LoadAdapter(ctx context.Context, a *wire.LoadAdapter) ([]reports.InfoAdapter, error)
	UnloadAdapter(ctx context.Context, model, name string) ([]reports.InfoAdapter, error)
	SetScales(list []wire.LoRA) error

	// Open opens a client within the process, in the name of an HTTP request's.
	Open(peer ipc.Peer) (*ipc.Local, error)
}

// Of a stream whose model is being loaded.
const (
	TellLoadEvery = time.Second     // between two reports of how much is loaded
	WaitsForLoad  = "model_loading" // the reason of the wait, as why has it
)

// backend is the api.Backend of a daemon. Each Start opens a client within the process in its HTTP client's name, so
// that HTTP requests are queued, paused and cancelled by the same code as those of framed clients.
type backend struct {
	s *Server
	Daemon
}

// maxStartBytes bounds the text of all requests that one HTTP request becomes.
const maxStartBytes = 64 << 20

func (b backend) Start(ctx context.Context, requests ...*wire.Request) (api.Stream, error) {
	size := 0
	for _, r := range requests {
		if size += r.TextBytes() + 8*len(r.PromptTokens); size > maxStartBytes {
			return nil, &api.Error{Code: wire.FrameTooLarge, Message: fmt.Sprintf(
				"the body asks for requests of more than %d bytes in all", maxStartBytes)}
		}
	}
	s, err := b.open(ctx, len(requests))
	if err != nil {
		return nil, err
	}
	said := routedOf(ctx)
	for _, r := range requests {
		r = r.Clone() // the API keeps r
		if r.Traceparent == "" {
			r.Traceparent = traceparentOf(ctx)
		}
		said.apply(r)
		s.c.Request(r)
	}
	s.unstop = api.OnStop(ctx, func() {
		for _, r := range requests {
			s.c.Cancel(r.ID)
		}
	})
	return s, nil
}

func (b backend) Embed(ctx context.Context, e *wire.Embed) (api.Stream, error) {
	s, err := b.open(ctx, 1)
	if err != nil {
		return nil, err
	}
	s.c.Embed(e.Clone())
	return s, nil
}

// open opens a client within the process for the HTTP request of ctx, which becomes so many requests. The end of ctx
// cancels them.
func (b backend) open(ctx context.Context, requests int) (*stream, error) {
	peer, ok := ipc.PeerOf(ctx)
	if !ok {
		return nil, &api.Error{Code: wire.InternalFailure, Message: "the client is not known"}
	}
	c, err := b.Open(peer)
	if err != nil {
		return nil, b.lost(ctx, err)
	}
	return &stream{b: b, ctx: ctx, c: c, open: requests, began: time.Now(),
		unhook: context.AfterFunc(ctx, c.Close)}, nil
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
	if ctx.Err() != nil { // the client has left: its request counts as cancelled, and no answer as rejected
		relayed(ctx)
	}
	return &api.Error{Code: wire.ShuttingDown, Message: "the server ended the request: " + err.Error()}
}

// stream is the events of a client within the process.
type stream struct {
	b      backend
	ctx    context.Context
	c      *ipc.Local
	unhook func() bool
	unstop func() // nil: a stop does not end it
	open   int    // requests that have not ended

	ev    wire.Event // made here, not by the daemon
	began time.Time
}

func (s *stream) Next() *wire.Event {
	for s.open > 0 {
		if ev := s.c.Take(); ev != nil {
			s.note(ev)
			return ev
		}
		if err := s.c.Err(); err != nil {
			s.open = 0
			s.ev = wire.Event{Kind: wire.EventError, Error: wire.Error(*s.b.lost(s.ctx, err))}
			return &s.ev
		}
		if s.b.Ready() {
			<-s.c.Wake()
			continue
		}
		select {
		case <-s.c.Wake():
		case <-time.After(TellLoadEvery):
			if !s.b.Ready() {
				s.ev = wire.Event{Kind: wire.EventProgress, Progress: wire.Progress{Waiting: WaitsForLoad,
					Loaded: s.b.LoadProgress(), Elapsed: time.Since(s.began)}}
				return &s.ev
			}
		}
	}
	return nil
}

// note counts the ends of requests.
func (s *stream) note(ev *wire.Event) {
	switch {
	case ev.Kind == wire.EventError && ev.ID == "":
		s.open = 0
	case ev.Kind == wire.EventError || ev.Kind == wire.EventEOS:
		s.open--
	}
	if ev.Kind == wire.EventError {
		relayed(s.ctx)
	}
}

func (s *stream) Ready() bool { return s.c.Ready() }

func (s *stream) Close() {
	s.unhook()
	if s.unstop != nil {
		s.unstop()
	}
	s.c.Close()
}

// question asks a control question and returns the report that answers it.
func (b backend) question(ctx context.Context, q *wire.Frame) (json.RawMessage, error) {
	s, err := b.open(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	s.c.Ask(q)
	for ev := s.Next(); ev != nil; ev = s.Next() {
		switch ev.Kind {
		case wire.EventReport:
			return bytes.Clone(ev.Report), nil
		case wire.EventError:
			return nil, (*api.Error)(&ev.Error)
		}
	}
	return nil, b.lost(ctx, io.ErrUnexpectedEOF)
}

func (b backend) Why(ctx context.Context, q wire.WhyQuestion) (json.RawMessage, error) {
	return b.question(ctx, &wire.Frame{Kind: wire.KindWhy, Why: q})
}

func (b backend) KV(ctx context.Context, q wire.KVQuestion) (json.RawMessage, error) {
	return b.question(ctx, &wire.Frame{Kind: wire.KindKV, KV: q})
}

func (b backend) Owner(ctx context.Context) uint32 {
	peer, _ := ipc.PeerOf(ctx)
	return peer.UID
}

func (b backend) Cancel(ctx context.Context, id string) bool { return b.CancelNamed(b.Owner(ctx), id) }

func (b backend) EndThink(ctx context.Context, id string) bool {
	return b.EndThinkNamed(b.Owner(ctx), id)
}

// Administers reports whether the client is root or the server's user, or everyone may change models.
func (b backend) Administers(r *http.Request) bool {
	peer, _ := ipc.PeerOf(r.Context())
	return b.s.Config.AllowModelChanges || b.s.Config.Privileged(b.s.Access.OwnerOf(r, peer))
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
	return b.Daemon.Render(ctx, b.Owner(ctx), r)
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
