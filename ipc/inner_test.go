package ipc

import (
	"io"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// A connection from within is a framed one in its client's name, which counts as no session.
func TestConnect(t *testing.T) {
	h := newRecorder()
	peers := make(chan Peer, 1)
	h.onReq = func(c *Conn, r *wire.Request) {
		peers <- c.Peer()
		if r.Prompt == "stay" {
			return
		}
		echo(c, r)
	}
	l := serve(t, Config{MaxSessions: 1}, h)
	want := Peer{UID: 4711, GID: 12, PID: 99}
	nc, err := l.Connect(want)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(waitfor.Limit))
	def := wire.DefaultRequest()
	req := wire.DefaultRequest()
	req.ID, req.Prompt = "a", "hello"
	nc.Write(wire.AppendRequest(nil, &req, &def))
	var split wire.Splitter
	var p wire.Parser
	var ev wire.Event
	var text string
	for ev.Kind != wire.EventEOS {
		b := make([]byte, 4096)
		n, err := nc.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		for rest := b[:n]; ; {
			var payload []byte
			if payload, rest, err = split.Next(rest); err != nil {
				t.Fatal(err)
			} else if payload == nil {
				break
			}
			if err := p.ParseEvent(payload, &ev); err != nil {
				t.Fatal(err)
			}
			if ev.Kind == wire.EventToken {
				text += string(ev.Token.Text)
			}
		}
	}
	if got := <-peers; text != "hello" || got != want {
		t.Errorf("%q from %+v", text, got)
	}
	if n := l.Stats().Sessions.Load(); n != 0 {
		t.Errorf("%d sessions", n)
	}

	// Its end cancels.
	req.ID, req.Prompt = "b", "stay"
	nc.Write(wire.AppendRequest(nil, &req, &def))
	<-peers
	nc.Close()
	h.wait(t, "closed peer_closed")
	h.mu.Lock()
	for _, c := range h.conns {
		c.Done("b")
	}
	h.mu.Unlock()
	if n := l.Stats().Sessions.Load(); n != 0 {
		t.Errorf("%d sessions after the end", n)
	}

	// A loop that stops ends them, and takes no more.
	last, err := l.Connect(want)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	l.Stop(time.Second)
	if _, err := io.ReadAll(last); err != nil {
		t.Error(err)
	}
	if _, err := l.Connect(want); err == nil {
		t.Error("a stopped loop took a connection")
	}
}
