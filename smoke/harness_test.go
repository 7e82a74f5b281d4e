//go:build cgo && (llama_engine || llama_system)

// Package smoke drives the built binaries over the socket, end to end: M1 one client in every protocol, M2 eight
// clients at once, M3 everything that goes wrong. After each, nothing may be left behind.
package smoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/programs"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// bin holds the binaries under test.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "uma-smoke")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		bin = dir
		if err := programs.Build(bin, "uma-serve", "uma-cli", "uma-bench", "uma-sim"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// server is a daemon under test.
type server struct {
	*daemonproc.Proc
	t        *testing.T
	baseline reports.Info
}

// start runs a daemon on a small model and remembers what it holds when it has nothing to do.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	return startModel(t, ggufgen.Cached(t, ggufgen.Tiny()), args...)
}

func startModel(t *testing.T, model string, args ...string) *server {
	t.Helper()
	s := startModelBare(t, model, args...)
	// One request of each kind first, so that what is allocated once for good is in the baseline.
	c := s.dial()
	c.request(`{"id":"warm","prompt":"a","max_tokens":2}`)
	if ev, err := c.end("warm"); err != nil || ev.Kind != wire.EventEOS {
		t.Fatalf("%+v %v", ev, err)
	}
	c.Close()
	s.settle(func(in reports.Info) error {
		if in.Live.Sessions > 1 { // the one that asks
			return errors.New("sessions")
		}
		return nil
	})
	s.baseline = s.info()
	return s
}

// startModelBare starts a daemon and asks it nothing.
func startModelBare(t *testing.T, model string, args ...string) *server {
	t.Helper()
	return startBinary(t, filepath.Join(bin, "uma-serve"), model, args...)
}

// startBinary is startModelBare with another program.
func startBinary(t *testing.T, exe, model string, args ...string) *server {
	t.Helper()
	p, err := daemonproc.Start(exe, waitfor.Limit, nil, append([]string{"-m", model, "-t", "1"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Proc: p, t: t}
	t.Cleanup(func() {
		if err := p.Stop(waitfor.Limit); err != nil {
			t.Errorf("the daemon did not stop in order: %v\n%s", err, p.Log())
		}
		if t.Failed() {
			t.Logf("daemon log:\n%s", p.Log())
		}
	})
	return s
}

func (s *server) info() (in reports.Info) {
	s.t.Helper()
	body, err := s.Ask("info")
	if err != nil {
		s.t.Fatalf("info: %v", err)
	}
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		s.t.Fatalf("info: %v in %s", err, body)
	}
	return in
}

// settle waits until ok finds nothing wrong: closing takes the daemon a moment after the client is done.
func (s *server) settle(ok func(reports.Info) error) {
	s.t.Helper()
	var err error
	defer func() {
		if err != nil {
			s.t.Logf("it does not settle: %v", err)
		}
	}()
	waitfor.True(s.t, "the daemon settles", func() bool { err = ok(s.info()); return err == nil })
}

// nothingLeft asserts that no request, sequence, cell, goroutine, connection or descriptor is left.
func (s *server) nothingLeft() {
	s.t.Helper()
	s.settle(func(in reports.Info) error {
		l, b := in.Live, s.baseline.Live
		switch {
		case l.Requests != 0 || l.InFlight != 0:
			return fmt.Errorf("%d requests, %d in flight are left", l.Requests, l.InFlight)
		case l.Sequences != 0 || l.Resident != 0:
			return fmt.Errorf("%d sequences are left, %d hold cells", l.Sequences, l.Resident)
		case l.LiveCells != 0 || l.FreeCells != in.ContextTokens():
			return fmt.Errorf("%d cells are live, %d free of %d", l.LiveCells, l.FreeCells, in.ContextTokens())
		case l.Sessions > b.Sessions:
			return fmt.Errorf("%d sessions, %d before", l.Sessions, b.Sessions)
		case l.Goroutines > b.Goroutines:
			return fmt.Errorf("%d goroutines, %d before", l.Goroutines, b.Goroutines)
		case l.Descriptors > b.Descriptors:
			return fmt.Errorf("%d descriptors, %d before", l.Descriptors, b.Descriptors)
		}
		return nil
	})
}

// client is a raw connection: the tests speak the protocol itself, not through the client library.
type client struct {
	net.Conn
	t     *testing.T
	split split.Frames
	p     frames.Parser
	rest  []byte
	ended map[string]*wire.Event      // eos and errors that no test has waited for yet, by request
	text  map[string]*strings.Builder // streamed text by request
	said  map[string]said
}

func (s *server) dial() *client {
	s.t.Helper()
	c, err := net.Dial("unix", s.Socket)
	if err != nil {
		s.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(waitfor.Limit))
	return &client{Conn: c, t: s.t, split: split.Frames{Max: wire.MaxEventBytes}, text: map[string]*strings.Builder{},
		said: map[string]said{}, ended: map[string]*wire.Event{}}
}

// request sends JSON frames, several of them together: the daemon has read all before the first is far.
func (c *client) request(frames ...string) {
	c.t.Helper()
	var b []byte
	for _, json := range frames {
		b = wire.AppendFrame(b, []byte(json))
	}
	if _, err := c.Write(b); err != nil {
		c.t.Fatalf("send %s: %v", frames, err)
	}
}

// next is the next event, or io.EOF.
func (c *client) next() (*wire.Event, error) {
	for {
		for len(c.rest) > 0 {
			payload, rest, err := c.split.Next(c.rest)
			if err != nil {
				return nil, err
			}
			c.rest = rest
			if payload != nil {
				ev := &wire.Event{}
				if err := c.p.ParseEvent(payload, ev); err != nil {
					return nil, fmt.Errorf("%w in %s", err, payload)
				}
				if ev.Kind == wire.EventToken {
					b := c.text[ev.ID]
					if b == nil {
						b = &strings.Builder{}
						c.text[ev.ID] = b
					}
					b.Write(ev.Token.Text)
					w := word{token: ev.Token.TokenID, text: string(ev.Token.Text)}
					for _, l := range ev.Token.Top {
						w.top = append(w.top, likely{l.Token, l.Logprob})
					}
					c.said[ev.ID] = append(c.said[ev.ID], w)
				}
				return ev, nil
			}
		}
		buf := make([]byte, 8192)
		n, err := c.Read(buf)
		if err != nil {
			return nil, err
		}
		c.rest = buf[:n]
	}
}

// end reads until request id has its eos or error, which may have come while another one's was waited for.
func (c *client) end(id string) (*wire.Event, error) {
	for {
		if ev := c.ended[id]; ev != nil {
			delete(c.ended, id)
			return ev, nil
		}
		ev, err := c.next()
		if err != nil {
			return nil, fmt.Errorf("waiting for the end of %q: %w", id, err)
		}
		if ev.Kind == wire.EventEOS || ev.Kind == wire.EventError {
			if ev.ID == id {
				return ev, nil
			}
			c.ended[ev.ID] = ev
		}
	}
}

func (c *client) mustEnd(id string, want wire.Reason) *wire.EOS {
	c.t.Helper()
	ev, err := c.end(id)
	if err != nil {
		c.t.Fatal(err)
	}
	if ev.Kind != wire.EventEOS || ev.EOS.Reason != want {
		c.t.Fatalf("request %q ended with %+v %+v, want eos %s", id, ev.EOS, ev.Error, want)
	}
	return &ev.EOS
}

func (c *client) mustFail(id string, want wire.Code) *wire.Error {
	c.t.Helper()
	ev, err := c.end(id)
	if err != nil {
		c.t.Fatal(err)
	}
	if ev.Kind != wire.EventError || ev.Error.Code != want {
		c.t.Fatalf("request %q ended with %+v %+v, want error %s", id, ev.EOS, ev.Error, want)
	}
	return &ev.Error
}

// mustClose asserts that the server ends the connection.
func (c *client) mustClose() {
	c.t.Helper()
	for {
		if _, err := c.next(); err != nil {
			if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
				c.t.Fatalf("the connection did not end: %v", err)
			}
			return
		}
	}
}
