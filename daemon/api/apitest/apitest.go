// Package apitest serves an API over real HTTP with a backend whose events a test writes, and reads the answers.
package apitest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
)

// Backend is an api.Backend. Its model is called "tiny", its tokens are bytes.
type Backend struct {
	// Answer returns the events of a request; the backend fills in their ids.
	Answer func(r *wire.Request) []wire.Event
	// Hold, if set, must be sent to before the last event of each request.
	Hold chan struct{}
	// Loading makes the backend behave as while the model loads.
	Loading bool

	// AddsBOS makes the tokenizer and the chat template put a BOS before a text.
	AddsBOS bool
	// NoEmbeddings makes the model one without embeddings, and Pooling one with another pooling than "mean".
	NoEmbeddings bool
	Pooling      runtime.Pooling
	// EmbedError, if set, answers requests for embeddings.
	EmbedError *wire.Error

	mu        sync.Mutex
	scales    []wire.LoRA
	embeds    []*wire.Embed
	requests  []*wire.Request
	cancelled map[string]bool
	broken    error         // of the last request that the daemon could not parse
	passed    time.Duration // since Clock
}

// Requests returns the requests of all Starts and Renders, as the daemon would parse them.
func (b *Backend) Requests() []*wire.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// parse encodes r as a frame and parses it, like the daemon.
func (b *Backend) parse(r *wire.Request) (*wire.Request, error) {
	def := wire.DefaultRequest()
	f, err := wire.Parse(new(wire.Parser), frames.AppendRequest(nil, r, &def)[4:], &def)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.broken = err
		return nil, err
	}
	b.requests = append(b.requests, f.Request)
	return f.Request, nil
}

// Start answers each request in turn with one of its events.
func (b *Backend) Start(ctx context.Context, requests ...*wire.Request) (api.Stream, error) {
	s := &stream{b: b}
	var lists [][]wire.Event
	for _, r := range requests {
		parsed, err := b.parse(r)
		if err != nil {
			return nil, err
		}
		events := b.Answer(parsed)
		for i := range events {
			events[i].ID = parsed.ID
		}
		lists = append(lists, events)
	}
	for i, more := 0, true; more; i++ {
		more = false
		for _, events := range lists {
			if i < len(events) {
				s.events, more = append(s.events, events[i]), true
			}
		}
	}
	return s, nil
}

// Embeds returns the requests for embeddings, as the daemon would have parsed them.
func (b *Backend) Embeds() []*wire.Embed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.embeds
}

// Embed answers with the embedding (number of bytes or tokens, index, 0.5, -1) of each input, in the reverse of their
// order; with pooling "none" with one for each of its tokens, whose last value is the row's number.
func (b *Backend) Embed(_ context.Context, e *wire.Embed) (api.Stream, error) {
	f, err := wire.Parse(new(wire.Parser), frames.AppendEmbed(nil, e)[4:], &wire.Request{})
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.broken = err
		return nil, err
	}
	b.embeds = append(b.embeds, f.Embed)
	s := &stream{b: b}
	if b.EmbedError != nil {
		bad := *b.EmbedError
		bad.ID = e.ID
		s.events = append(s.events, wire.Event{Kind: wire.EventError, ID: e.ID, Error: bad})
		return s, nil
	}
	total := 0
	for i := len(e.Inputs) - 1; i >= 0; i-- {
		n := max(len(e.Inputs[i].Text), len(e.Inputs[i].Tokens))
		total += n
		first, last := -1, 0
		if b.Pooling == runtime.PoolNone {
			first, last = 0, n
		}
		for row := first; row < last; row++ {
			v := []float32{float32(n), float32(i), 0.5, float32(row)}
			if e.Dimensions > 0 {
				v = v[:min(e.Dimensions, len(v))] // the daemon has refused more than the model's width
			}
			s.events = append(s.events,
				wire.Event{Kind: wire.EventEmbedding, ID: e.ID, Embedding: wire.Embedding{ID: e.ID, Index: i, Row: row,
					Tokens: n, Values: v}})
		}
	}
	s.events = append(s.events, wire.Event{Kind: wire.EventEOS, ID: e.ID,
		EOS: wire.EOS{ID: e.ID, Reason: wire.Stop, Streamed: true, Usage: wire.Usage{PromptTokens: total}}})
	return s, nil
}

type stream struct {
	b      *Backend
	events []wire.Event
	next   int
}

func (s *stream) Next() *wire.Event {
	if s.next == len(s.events) {
		return nil
	}
	ev := &s.events[s.next]
	s.next++
	if ev.Kind == wire.EventProgress {
		s.b.mu.Lock()
		s.b.passed += time.Second
		s.b.mu.Unlock()
	}
	if ev.Kind == wire.EventEOS && s.b.Hold != nil {
		<-s.b.Hold
		s.b.mu.Lock()
		if s.b.cancelled[ev.ID] {
			ev.EOS.Reason = wire.Cancelled
		}
		s.b.mu.Unlock()
	}
	return ev
}

func (s *stream) Ready() bool { return s.next < len(s.events) && s.b.Hold == nil }
func (s *stream) Close()      {}

// Render returns a token for each byte of the messages.
func (b *Backend) Render(ctx context.Context, r *wire.Request) (*api.Prompt, error) {
	parsed, err := b.parse(r)
	if err != nil {
		return nil, err
	}
	p := &api.Prompt{Text: parsed.Prompt}
	if b.AddsBOS {
		p.Text = b.Facts().BOS
	}
	for _, m := range parsed.Messages {
		p.Text += m.Role + ":" + m.Content + "\n"
	}
	p.Tokens, err = b.Tokenize(ctx, p.Text, true, true)
	return p, err
}

// Tokenize returns the bytes of text.
func (b *Backend) Tokenize(_ context.Context, text string, _, _ bool) (tokens []int32, err error) {
	for i := range len(text) {
		tokens = append(tokens, int32(text[i]))
	}
	return tokens, nil
}

// Detokenize returns tokens as bytes.
func (b *Backend) Detokenize(tokens []int32) (text []byte, err error) {
	for _, t := range tokens {
		if t > 255 {
			return nil, api.Refuse("token " + strconv.Itoa(int(t)) + " is not in the vocabulary")
		}
		text = append(text, byte(t))
	}
	return text, nil
}

// Model returns "tiny".
func (b *Backend) Model() string { return "tiny" }

// Await refuses to wait.
func (b *Backend) Await(context.Context) error {
	if b.Loading {
		return &api.Error{Code: wire.ModelUnready, Message: "the model is loading"}
	}
	return nil
}

// Models returns the model.
func (b *Backend) Models() []reports.ServedModel {
	return []reports.ServedModel{{ID: "tiny", Object: "model"}}
}

// Facts returns the properties of a small model with all features.
func (b *Backend) Facts() *api.Facts {
	if b.Loading {
		return nil
	}
	f := &api.Facts{Context: 64, Cells: 64, Template: "{{ messages }}", Infill: []int32{1, 2, 3}, BOS: "<s>",
		EOS: "</s>",
		EOG: []int32{2}, Parallel: 2, MaxPromptBytes: 1 << 20, Seed: -1}
	f.AddsBOS = b.AddsBOS
	m := &f.Model
	m.Path, m.Name, m.Architecture, m.Description = "/models/tiny.gguf", "tiny", "llama", "llama 15M Q4_K - Medium"
	m.Parameters, m.Bytes, m.TrainContext, m.Layers, m.Embedding, m.Heads, m.KVHeads, m.VocabSize = 15_000_000,
		9_000_000, 2048, 5, 288, 6, 3, 256
	m.ChatTemplate, m.Thinks = true, true
	if b.NoEmbeddings {
		m.NoEmbeddings = "the file does not say how"
	} else {
		m.Embeddings = &reports.InfoEmbeddings{Values: 4, Pooling: cmp.Or(b.Pooling, runtime.PoolMean), Longest: 32}
	}
	return f
}

// Adapters returns two, with the scales of the last SetScales.
func (b *Backend) Adapters() []reports.InfoAdapter {
	list := []reports.InfoAdapter{{ID: 0, Name: "sql", Path: "/adapters/sql.gguf"},
		{ID: 1, Name: "poet", Path: "/adapters/poet.gguf"}}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.scales {
		list[l.ID].Scale = l.Scale
	}
	return list
}

// LoadAdapter refuses.
func (b *Backend) LoadAdapter(context.Context, *wire.LoadAdapter) ([]reports.InfoAdapter, error) {
	return nil, api.Refuse("no adapters are loaded here")
}

// UnloadAdapter refuses.
func (b *Backend) UnloadAdapter(context.Context, string, string) ([]reports.InfoAdapter, error) {
	return nil, api.Refuse("no adapters are loaded here")
}

// Administers reports whether the request has the header X-Administers.
func (b *Backend) Administers(r *http.Request) bool { return r.Header.Get("X-Administers") != "" }

// SetScales refuses adapters that Adapters does not have.
func (b *Backend) SetScales(list []wire.LoRA) error {
	for _, l := range list {
		if l.ID > 1 {
			return api.Refuse("there is no adapter " + strconv.Itoa(l.ID))
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scales = list
	return nil
}

// Info returns an empty report.
func (b *Backend) Info() reports.Info { return reports.Info{} }

// Health returns status "ok".
func (b *Backend) Health() reports.Health {
	if b.Loading {
		return reports.Health{Status: "loading"}
	}
	return reports.Health{Status: "ok"}
}

// Why returns a fixed report.
func (b *Backend) Why(context.Context, wire.WhyQuestion) (json.RawMessage, error) {
	return json.RawMessage(`{"requests":[]}`), nil
}

// KV returns a fixed report.
func (b *Backend) KV(context.Context, wire.KVQuestion) (json.RawMessage, error) {
	return json.RawMessage(`{}`), nil
}

// Cancel ends a held request as cancelled.
func (b *Backend) Cancel(_ context.Context, id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if r.ID == id && b.Hold != nil {
			if b.cancelled == nil {
				b.cancelled = map[string]bool{}
			}
			b.cancelled[id] = true
			return true
		}
	}
	return false
}

// EndThink finds no request.
func (b *Backend) EndThink(context.Context, string) bool { return false }

type ownerKey struct{}

// Owner returns the number in the request's header X-Owner, 0 without one.
func (b *Backend) Owner(ctx context.Context) uint32 {
	n, _ := ctx.Value(ownerKey{}).(uint32)
	return n
}

// Clock is the time at the start of a test; each progress event advances it by a second.
var Clock = time.Unix(1_700_000_000, 0)

func (b *Backend) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Clock.Add(b.passed)
}

// strictHeader asks for the refusal of unknown fields.
const strictHeader = "X-Strict"

// Serve serves an API on loopback until the test ends.
func Serve(t testing.TB, b *Backend, routes func(*api.Server) []api.Route) string {
	mux := http.NewServeMux()
	s := &api.Server{Backend: b, Version: "test", Log: slog.New(slog.DiscardHandler), Now: b.now}
	for _, r := range routes(s) {
		telling := s.Telling(r.Handle)
		mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get(strictHeader) != "" { // as with --strict-fields
				r.Handle(w, req)
				return
			}
			telling(w, req)
		})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseUint(r.Header.Get("X-Owner"), 10, 32)
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ownerKey{}, uint32(n))))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Do sends a request; the body of a GET is "". owner 0 sends no X-Owner.
func Do(t testing.TB, method, url, body string, owner int) (int, http.Header, string) {
	t.Helper()
	return do(t, method, url, body, owner, false)
}

func do(t testing.TB, method, url, body string, owner int, strict bool) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Owner", strconv.Itoa(owner))
	if strict {
		req.Header.Set(strictHeader, "1")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// SSE is one server-sent event.
type SSE struct {
	Name string
	Data string
}

// Events splits a stream.
func Events(t testing.TB, body string) (events []SSE) {
	t.Helper()
	var ev SSE
	in := bufio.NewScanner(strings.NewReader(body))
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		line := in.Text()
		switch name, value, _ := strings.Cut(line, ": "); {
		case line == ":": // a comment
			ev.Data = ":"
		case line == "":
			events, ev = append(events, ev), SSE{}
		case name == "event":
			ev.Name = value
		case name == "data":
			ev.Data = value
		case strings.HasPrefix(line, "{"): // an error outside of an event, as Google's API has it
			ev = SSE{"bare", line}
		default:
			t.Fatalf("not a line of an event: %q", line)
		}
	}
	return events
}

// Text returns the event of a token of the answer.
func Text(text string) wire.Event {
	return wire.Event{Kind: wire.EventToken, Token: wire.Token{Text: []byte(text), Phase: wire.Output}}
}

// Think returns the event of a token of the thinking.
func Think(text string) wire.Event {
	return wire.Event{Kind: wire.EventToken, Token: wire.Token{Text: []byte(text), Phase: wire.Thinking}}
}

// Call returns the events of the index-th tool call, with its arguments in these parts.
func Call(index int, id, name string, parts ...string) []wire.Event {
	events := []wire.Event{{Kind: wire.EventToolCall, ToolCall: wire.ToolCallDelta{Index: index, CallID: id,
		Name: name}}}
	for _, p := range parts {
		events = append(events,
			wire.Event{Kind: wire.EventToolCall, ToolCall: wire.ToolCallDelta{Index: index, Arguments: []byte(p)}})
	}
	return events
}

// Progress returns a progress event for a prompt of ten tokens, two of them cached.
func Progress(processed int) wire.Event {
	return wire.Event{Kind: wire.EventProgress, Progress: wire.Progress{Processed: processed, Total: 10, Cached: 2}}
}

// EOS returns the end of an answer of five tokens, one of them thinking, to a prompt of ten, two of them cached.
func EOS(reason wire.Reason) wire.Event {
	return wire.Event{Kind: wire.EventEOS,
		EOS: wire.EOS{Reason: reason, Streamed: true, Usage: wire.Usage{PromptTokens: 10, CachedTokens: 2,
			CompletionTokens: 5, ThinkTokens: 1}}}
}
