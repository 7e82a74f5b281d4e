// Package api is the common base of the daemon's HTTP APIs. Each API is a package below this one: it translates bodies
// into the internal request ([wire.Request]) and the events of that request into its answers. It uses the daemon only
// through [Backend], so that its tests need neither a daemon nor a model.
//
// A body becomes a request in three steps: [Table.Body] checks the JSON and sorts its fields by the API's table;
// [Body.Into] decodes the fields that the API translates; [Body.Request] adds the other fields, whose names a request
// shares, and has package wire check all of them.
package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Backend is the daemon, as an API uses it. The context of each call is the HTTP request's; it identifies the
// client. Errors are *Error.
type Backend interface {
	// Start sends requests in the client's name, all of them before the first event is read. The end of ctx cancels
	// them. The caller closes the stream.
	Start(ctx context.Context, requests ...*wire.Request) (Stream, error)

	// Embed sends a request for embeddings; its events are embeddings, then an eos. What is said of Start holds.
	Embed(ctx context.Context, e *wire.Embed) (Stream, error)

	// Render returns the prompt of r.
	Render(ctx context.Context, r *wire.Request) (*Prompt, error)
	// Tokenize tokenizes text. special adds the special tokens at the start of a sequence; markers parses control
	// tokens ("<|im_start|>").
	Tokenize(ctx context.Context, text string, special, markers bool) ([]int32, error)
	// Detokenize returns the bytes of tokens; a control token has the bytes of its name.
	Detokenize(tokens []int32) ([]byte, error)

	// Model returns the name of the model, "" while it loads.
	Model() string
	// Models lists the served models, none while they load.
	Models() []reports.ServedModel
	// Facts returns properties of the model and limits of requests, nil while it loads.
	Facts() *Facts
	// Await waits until the model is loaded. It returns an error when it cannot be, or requests do not wait for it.
	Await(ctx context.Context) error
	// Adapters lists the adapters of the model. SetScales sets the scales of requests that choose none; those that the
	// list leaves out are 0.
	Adapters() []reports.InfoAdapter
	SetScales(list []wire.LoRA) error
	// LoadAdapter and UnloadAdapter are those of package changes.
	LoadAdapter(ctx context.Context, a *wire.LoadAdapter) ([]reports.InfoAdapter, error)
	UnloadAdapter(ctx context.Context, model, name string) ([]reports.InfoAdapter, error)
	// Administers reports whether the client of r may change what every request gets.
	Administers(r *http.Request) bool
	Info() reports.Info
	Health() reports.Health

	// Why and KV return the value of the framed protocol's event.
	Why(ctx context.Context, q wire.WhyQuestion) (json.RawMessage, error)
	KV(ctx context.Context, q wire.KVQuestion) (json.RawMessage, error)
	// Cancel ends the client's request with this id and its further answers (n > 1); EndThink ends their thinking. Both
	// report whether there is such a request.
	Cancel(ctx context.Context, id string) bool
	EndThink(ctx context.Context, id string) bool

	// Owner returns the user or API-key owner of the client. Owners do not see each other's stored objects.
	Owner(ctx context.Context) uint32
}

// Stream delivers the events of the requests of one Start, in the order in which they happen.
type Stream interface {
	// Next waits for the next event, which is valid until the next call. It returns nil when every request has ended. A
	// lost connection ends with an error event without id, for all requests.
	Next() *wire.Event
	// Ready reports whether Next will not wait.
	Ready() bool
	// Close cancels the requests that still run.
	Close()
}

// Prompt is a request's prompt.
type Prompt struct {
	Text   string // "" if the request has token ids
	Tokens []int32
}

// Facts are properties of the loaded model, or of the file of one that is not loaded. They do not change.
type Facts struct {
	File     File // facts about the model's file; zero if it cannot be read
	Asleep   bool // the model is not loaded
	Model    reports.InfoModel
	Context  int     // the largest context of one request, in tokens
	Cells    int     // size of the KV cache, shared by all requests, in tokens; at least Context
	GPU      bool    // layers are on a GPU
	Template string  // the chat template's text, "" without chat
	BOS, EOS string  // texts of the BOS and EOS tokens; "" = no such token
	AddsBOS  bool    // the tokenizer puts a BOS before a text
	EOG      []int32 // the tokens that end an answer
	// Infill are the fill-in-the-middle tokens before prefix, suffix and middle; nil without fill-in-the-middle.
	Infill []int32

	Made   Made    // of a model that was made of another one by a request
	Router *Router // nil: the daemon was started with a model

	Parallel       int   // maximum number of running requests
	MaxTokens      int   // per answer; 0 = as many as fit
	MaxPromptBytes int   // 0 = limited only by the body's size
	Seed           int64 // default seed; negative: random
}

// Router says how a daemon that was started without a model, as llama-server's router is, loads those of requests.
type Router struct {
	Max  int  // models at a time; 0 = as many as fit
	Auto bool // a request loads its model
}

// Made has the parts of a model that was made of another one.
type Made struct {
	From       string // the other one
	System     string
	Parameters []string // lines of a Modelfile of ollama: "temperature 0.6"
	Licenses   []string
}

// File is a model's file.
type File struct {
	Type     string // the quantisation of most weights: "Q4_K_M"
	Digest   string // 64 hexadecimal digits that tell the file from others
	Bytes    int64  // of all its parts
	Modified time.Time
}

// Meta returns the model in the words of llama-server's list of models.
func (f *Facts) Meta() reports.ServedModelMeta {
	m := &f.Model
	return reports.ServedModelMeta{Context: f.Context, TrainContext: m.TrainContext, Parameters: int64(m.Parameters),
		Bytes: int64(m.Bytes), Vocabulary: m.VocabSize, Embedding: m.Embedding}
}

// Server holds what every API needs.
type Server struct {
	Backend
	StallTimeout time.Duration // for a client that does not read; 0 = none
	Version      string        // of the daemon
	SlotSavePath string        // --slot-save-path; "" = slots are not saved
	StrictFields bool          // --strict-fields: unknown fields are refused
	NoSlots      bool          // --no-slots: GET /slots is refused
	KVEvents     string        // --kv-events, with the port that it got; "" = none are published
	// NoPrefixCache: --no-prefix-cache.
	NoPrefixCache bool
	Defaults      *wire.Request // values of fields that requests omit; nil = wire.DefaultRequest()
	Log           *slog.Logger
	Now           func() time.Time
	// CountIgnored counts unknown fields that were left out. Nil: they are not counted.
	CountIgnored func(fields int)

	told toldFields
}

// Loaded waits for the model and returns its facts.
func (s *Server) Loaded(ctx context.Context) (*Facts, error) {
	if f := s.Facts(); f != nil {
		return f, nil
	}
	if err := s.Await(ctx); err != nil {
		return nil, err
	}
	return s.Facts(), nil
}

// Route is one endpoint.
type Route struct {
	Method string
	Path   string // a pattern of http.ServeMux without a method
	Handle http.HandlerFunc
}

// Error is the error of a request, which each API formats.
type Error wire.Error

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// OneModel is the reason why a process of one model downloads, loads and deletes none. A front does.
const OneModel = "this server has one model, with which it was started (--single); start uma-serve without --single " +
	"to download, load, copy and delete models"

// Refuse returns the error for an invalid body.
func Refuse(message string) *Error { return &Error{Code: wire.BadRequest, Message: message} }

// Refusef is Refuse with a formatted message.
func Refusef(format string, args ...any) *Error { return Refuse(fmt.Sprintf(format, args...)) }

// AsError converts an error of a Backend or a parser to an *Error.
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

// NewID returns a random id.
func NewID(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}
