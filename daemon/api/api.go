// Package api is what the HTTP APIs of the daemon stand on. Each API is a package below this one: it translates bodies into
// the one internal request ([wire.Request]) and the events of that request into its answers. It reaches the daemon through
// [Backend] alone, so that its tests need neither a daemon nor a model.
//
// A body becomes a request in three steps: [Table.Read] checks the JSON and sorts its fields by the API's table;
// [Body.Into] reads the fields that the API has to translate; [Body.Request] adds the others, which a request has by the
// same names, and has package wire check all of them.
package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Backend is the daemon as an API sees it. The context of every call is that of the HTTP request: it says whose request
// that is. Errors are *Error.
type Backend interface {
	// Start sends requests in the client's name, all of them before the first event is read. When ctx ends they are
	// cancelled. The caller closes the stream.
	Start(ctx context.Context, requests ...*wire.Request) (Stream, error)

	// Render is the prompt that the model would read for r.
	Render(ctx context.Context, r *wire.Request) (*Prompt, error)
	// Tokenize reads text as the model does: special adds the tokens at a sequence's start, markers reads the model's
	// markers ("<|im_start|>") as single tokens.
	Tokenize(ctx context.Context, text string, special, markers bool) ([]int32, error)
	// Detokenize returns the bytes of tokens; a marker has its name.
	Detokenize(tokens []int32) ([]byte, error)

	// Model is the name of the model, "" while it loads.
	Model() string
	// Models are the models that are served, none while they load.
	Models() []wire.ServedModel
	Info() wire.Info
	Health() wire.Health

	// Why and KV answer as the framed protocol does, with the value of the event.
	Why(ctx context.Context, q wire.WhyQuestion) (json.RawMessage, error)
	KV(ctx context.Context, q wire.KVQuestion) (json.RawMessage, error)
	// Cancel ends the client's request of this id, and the other answers of the same question; EndThink ends its
	// thinking. They report whether there is such a request.
	Cancel(ctx context.Context, id string) bool
	EndThink(ctx context.Context, id string) bool

	// Owner is the user that the client belongs to: what one owner stored, another must not see.
	Owner(ctx context.Context) uint32
}

// Stream is the events of the requests of one Start, in the order in which they happen.
type Stream interface {
	// Next waits for the next event, which is valid until the next call. nil: every request has ended. A connection that
	// is lost ends with an error event without id, which is about all requests.
	Next() *wire.Event
	// Ready reports whether Next will not wait.
	Ready() bool
	// Close cancels what still runs.
	Close()
}

// Prompt is what the model reads.
type Prompt struct {
	Text   string // "" where the request has token ids
	Tokens []int32
}

// Server is what every API is made with.
type Server struct {
	Backend
	StallTimeout time.Duration // for a client that does not read; 0 = for ever
	Version      string        // of the daemon
	Log          *slog.Logger
	Now          func() time.Time
}

// Route is one endpoint.
type Route struct {
	Method string
	Path   string // a pattern of http.ServeMux without a method
	Handle http.HandlerFunc
}

// Error is what an API says in its own form when a request fails.
type Error wire.Error

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Refuse is the error of a body that cannot be served.
func Refuse(message string) *Error { return &Error{Code: wire.BadRequest, Message: message} }

// AsError is err, which a Backend or a parser returned, as an *Error.
func AsError(err error) *Error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e
	}
	if e := (*wire.RequestError)(nil); errors.As(err, &e) {
		ev := Error(e.Event())
		return &ev
	}
	return Refuse(err.Error())
}

// Cut is the error of an answer that the server, not the model, ended; nil for the others.
func Cut(e *wire.EOS) *Error {
	if e.Reason == wire.Shutdown || e.Reason == wire.Cancelled {
		return &Error{Code: wire.ShuttingDown, Message: "the answer was ended before it was complete: " + string(e.Reason)}
	}
	return nil
}

// NewID returns an id that no other answer has.
func NewID(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}
