// Package clienttest is a fake daemon for tests of clients. It speaks real frames over a real socket, and the test
// decides what it answers. It shows on demand what a real daemon shows rarely: refusals, broken frames, a connection
// lost in the middle of an answer, an answer that waits until the test has seen the screen.
package clienttest

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// Server is a fake daemon. Set its fields before Start.
type Server struct {
	// Answer is called, in a new goroutine, for every generation request.
	Answer func(c *Conn, r *Request)
	// Embed, if set, is called, in a new goroutine, for every request for embeddings.
	Embed func(c *Conn, e *wire.Embed)
	// Health, Info and Metrics are the JSON bodies of reports.
	Health, Info, Metrics string
	// Question, if set, answers why and kv questions with a JSON body.
	Question func(f *wire.Frame) string
	// Greet, if set, is called with every new connection; false closes it.
	Greet func(c *Conn) bool

	Path string // the socket, once started

	dir      string // holds the socket
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    map[net.Conn]bool
}

// HealthOK, InfoTiny and MetricsEmpty are reports of a daemon that serves a small model.
const (
	HealthOK = `{"status":"ok","load_progress":1,"uptime_ms":61000,"last_step_age_ms":12,"requests":0}`
	InfoTiny = `{"status":"ok","version":"v0","engine":"fake","go":"go1.26","pid":4242,"socket":"uma.sock",` +
		`"uptime_ms":61000,` +
		`"model":{"path":"/models/tiny.gguf","name":"tiny","architecture":"llama","description":"llama 1M ` +
		`Q8_0","parameters":1048576,"bytes":1114112,"n_ctx_train":2048,"layers":2,"kv_type_k":"f16",` +
		`"kv_type_v":"f16","kv_bytes_per_token":1024,"n_vocab":512,"chat_template":true,"think_tags":true},` +
		`"capabilities":{"unified_kv":true,"n_ctx":4096,"max_batch":512,"max_sequences":8,"threads":2,"device":"cpu",` +
		`"device_name":"CPU","engine_build":"fake"},` +
		`"config":{"policy":"uma","parallel":8,"max_queue":512,"max_sessions":4096,"tick_budget_ms":30,` +
		`"policy_options":[{"name":"tick-budget-ms","value":30}]},` +
		`"memory":{"weights_bytes":1114112,"repacked_bytes":524288,"kv_bytes":4194304,"go_heap_bytes":3145728,` +
		`"rss_bytes":20971520},` +
		`"cost_model":{"a":4.25,"b":3.5,"c":6,"d":0.000125,"e":0.00025,"samples":1200,"error":0.0725},` +
		`"live":{"sessions":1,"requests":0,"sequences":0,"kv_cells_live":0,"kv_cells_free":4096,"goroutines":9,` +
		`"file_descriptors":12}}`
	MetricsEmpty = `{}`
)

// Request is a generation request, as its frame was parsed.
type Request struct {
	wire.Request
	Cancelled <-chan struct{} // closed by the client's cancel and by the end of the connection
	EndThink  <-chan struct{} // gets a value for each end_think of the client
}

// Conn is one client's connection. Its methods are safe for concurrent use.
type Conn struct {
	net.Conn
	mu      sync.Mutex
	running map[string]chan struct{}
	thinks  map[string]chan struct{}
}

// Start listens on a socket in a temporary directory until the test ends.
func (s *Server) Start(t testing.TB) *Server {
	t.Helper()
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Listen is Start without a test, for examples. The caller calls Stop.
func (s *Server) Listen() (err error) {
	if s.dir, err = os.MkdirTemp("", "uma"); err != nil { // t.TempDir can be longer than a socket path may be
		return err
	}
	s.Path = filepath.Join(s.dir, "uma.sock")
	if s.listener, err = net.Listen("unix", s.Path); err != nil {
		os.RemoveAll(s.dir)
		return err
	}
	for _, d := range []struct {
		field *string
		value string
	}{{&s.Health, HealthOK}, {&s.Info, InfoTiny}, {&s.Metrics, MetricsEmpty}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	s.conns = map[net.Conn]bool{}
	s.wg.Go(func() {
		for {
			conn, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.mu.Unlock()
			s.wg.Go(func() {
				s.serve(&Conn{Conn: conn, running: map[string]chan struct{}{}, thinks: map[string]chan struct{}{}})
			})
		}
	})
	return nil
}

// Stop closes the listener and every connection, waits for the handlers, and removes the socket's directory.
func (s *Server) Stop() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	os.RemoveAll(s.dir)
}

func (s *Server) serve(c *Conn) {
	defer c.end()
	if s.Greet != nil && !s.Greet(c) {
		return
	}
	var split split.Frames
	var p wire.Parser
	def := wire.DefaultRequest()
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		for in := buf[:n]; ; {
			payload, rest, err := split.Next(in)
			if err != nil || payload == nil {
				break
			}
			in = rest
			f, err := wire.Parse(&p, payload, &def)
			if bad, ok := err.(*wire.RequestError); ok {
				e := bad.Event()
				c.Send(func(dst []byte) []byte { return wire.AppendError(dst, &e) })
				continue
			}
			s.frame(c, f)
		}
	}
}

func (s *Server) frame(c *Conn, f wire.Frame) {
	report := func(body string) {
		c.Send(func(dst []byte) []byte { return wire.AppendReport(dst, f.Kind, f.ID, []byte(body)) })
	}
	s.mu.Lock()
	health, info, metrics := s.Health, s.Info, s.Metrics
	s.mu.Unlock()
	switch f.Kind {
	case wire.KindHealth:
		report(health)
	case wire.KindInfo:
		report(info)
	case wire.KindMetrics:
		report(metrics)
	case wire.KindWhy, wire.KindKV:
		if s.Question == nil {
			e := wire.Error{ID: f.ID, Code: wire.BadRequest, Message: "this server does not answer " + f.Kind.String()}
			c.Send(func(dst []byte) []byte { return wire.AppendError(dst, &e) })
			return
		}
		report(s.Question(&f))
	case wire.KindEmbed:
		if s.Embed == nil {
			e := wire.Error{ID: f.ID, Code: wire.NotSupported, Message: "this server makes no embeddings"}
			c.Send(func(dst []byte) []byte { return wire.AppendError(dst, &e) })
			return
		}
		s.wg.Go(func() { s.Embed(c, f.Embed) })
	case wire.KindCancel:
		c.cancel(f.ID)
	case wire.KindEndThink:
		c.mu.Lock()
		if ch := c.thinks[f.ID]; ch != nil {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
		c.mu.Unlock()
	case wire.KindRequest:
		cancelled, endThink := make(chan struct{}), make(chan struct{}, 8)
		c.mu.Lock()
		c.running[f.ID], c.thinks[f.ID] = cancelled, endThink
		c.mu.Unlock()
		s.wg.Go(func() { s.Answer(c, &Request{Request: *f.Request, Cancelled: cancelled, EndThink: endThink}) })
	}
}

// SetHealth changes the health report of a running server.
func (s *Server) SetHealth(body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Health = body
}

func (c *Conn) cancel(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.running[id]; ch != nil {
		close(ch)
		delete(c.running, id)
	}
}

func (c *Conn) end() {
	c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.running {
		close(ch)
	}
	clear(c.running)
}

// Send writes what appendFrame appends.
func (c *Conn) Send(appendFrame func([]byte) []byte) {
	frame := appendFrame(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Write(frame)
}

// Token sends a token event.
func (c *Conn) Token(id, text string, phase wire.Phase) {
	c.Send(func(dst []byte) []byte {
		return wire.AppendToken(dst, &wire.Token{ID: id, Text: []byte(text), TokenID: 7, Phase: phase})
	})
}

// EOS sends an end event.
func (c *Conn) EOS(e wire.EOS) {
	c.Send(func(dst []byte) []byte { return wire.AppendEOS(dst, &e) })
}

// Error sends an error event.
func (c *Conn) Error(e wire.Error) {
	c.Send(func(dst []byte) []byte { return wire.AppendError(dst, &e) })
}

// Progress sends a progress event.
func (c *Conn) Progress(p wire.Progress) {
	c.Send(func(dst []byte) []byte { return wire.AppendProgress(dst, &p) })
}
