package ipc

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// crowd is a Loop whose next clients belong to the user in uid, with an http.Server beside.
type crowd struct {
	*Loop
	h   *recorder
	uid atomic.Uint32

	answering atomic.Int32 // HTTP connections with a request
}

func newCrowd(t *testing.T, sessions int) *crowd {
	c := &crowd{h: newRecorder()}
	c.h.onReq = func(conn *Conn, r *wire.Request) {
		if r.Prompt != "stay" {
			echo(conn, r)
		}
	}
	c.Loop = serveAs(t, Config{MaxSessions: sessions}, c.h, func(int) (Peer, error) {
		return Peer{UID: c.uid.Load()},
			nil
	})
	srv := &http.Server{ConnContext: ConnContext,
		ConnState: func(nc net.Conn, state http.ConnState) {
			ConnState(nc, state) // now the connection is idle, or is not
			switch state {
			case http.StateActive:
				c.answering.Add(1)
			case http.StateIdle:
				c.answering.Add(-1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, done, ok := Busy(r.Context())
			defer done()
			if !ok {
				panic(http.ErrAbortHandler)
			}
			if r.URL.Path == "/stay" {
				w.WriteHeader(http.StatusOK)
				http.NewResponseController(w).Flush()
				<-ctx.Done()
			}
			fmt.Fprintln(w, "done")
		})}
	go srv.Serve(c.HTTP())
	t.Cleanup(func() { srv.Close() })
	return c
}

// join connects a client of uid and waits until it is one of n sessions.
func (c *crowd) join(t *testing.T, uid uint32, n int) *net.UnixConn {
	t.Helper()
	c.uid.Store(uid)
	accepted := c.Stats().Accepted.Load() + c.Stats().RefusedTotal()
	nc := dial(t, c.Loop)
	eventually(t, "accepted or refused",
		func() bool { return c.Stats().Accepted.Load()+c.Stats().RefusedTotal() == accepted+1 })
	if got := c.Stats().Sessions.Load(); got != int64(n) {
		t.Fatalf("%d sessions, want %d", got, n)
	}
	return nc
}

// TestConnectionsAreSharedByUsers: one user fills every session, in every protocol and state; another gets in, and
// those who make way are told why.
func TestConnectionsAreSharedByUsers(t *testing.T) {
	const flooder, newcomer = 1, 2
	get := []byte("GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	stay := []byte("GET /stay HTTP/1.1\r\nHost: x\r\n\r\n")
	for name, tc := range map[string]struct {
		first func(t *testing.T, c *crowd, nc *net.UnixConn) // what each of the flooder's clients does
		want  string                                         // in what the one that makes way reads
	}{
		"silent": {func(*testing.T, *crowd, *net.UnixConn) {}, "E_LIMIT_SESSIONS"},
		"framed": {func(t *testing.T, c *crowd, nc *net.UnixConn) {
			write(t, nc, request("a", "x"))
			wantToken(t, nc, "a", "x")
		}, "makes way for another user"},
		"framed with a request": {func(t *testing.T, c *crowd, nc *net.UnixConn) {
			write(t, nc, request("a", "stay"))
			c.h.wait(t, `request a "stay"`)
		}, "makes way for another user"},
		"HTTP": {func(t *testing.T, c *crowd, nc *net.UnixConn) {
			write(t, nc, get)
			if resp, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			eventually(t, "its answer is over for net/http, too", func() bool { return c.answering.Load() == 0 })
		}, "makes way for another user"},
		"half an HTTP header": {func(t *testing.T, c *crowd, nc *net.UnixConn) {
			n := c.Stats().HTTPOpened.Load()
			write(t, nc, get[:10])
			eventually(t, "handed over", func() bool { return c.Stats().HTTPOpened.Load() == n+1 })
		}, "HTTP/1.1 503 Service Unavailable"},
		"HTTP with a request": {func(t *testing.T, c *crowd, nc *net.UnixConn) {
			write(t, nc, stay)
			if _, err := bufio.NewReader(nc).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, 4)
			var flood []*net.UnixConn
			for i := range 4 {
				nc := c.join(t, flooder, i+1)
				tc.first(t, c, nc)
				flood = append(flood, nc)
			}
			one := c.join(t, newcomer, 4)
			write(t, one, request("n", "in"))
			wantToken(t, one, "n", "in")
			if b, err := io.ReadAll(flood[3]); err != nil || !strings.Contains(string(b), tc.want) {
				t.Errorf("the newest of the flood reads %q, %v", b, err)
			}
			flood[3].Close()
			two := c.join(t, newcomer, 4)
			write(t, two, request("n", "in"))
			wantToken(t, two, "n", "in")
			// Two and two: that is both users' share.
			three := c.join(t, newcomer, 4)
			write(t, three, request("n", "in"))
			if m := answer(t, three); m["code"] != string(wire.SessionLimit) || !strings.Contains(m["message"].(string),
				"2 of them your user's") {
				t.Errorf("%v", m)
			}
			if d, r := c.Stats().Closed[Displaced].Load(), c.Stats().Refused[OverSessions].Load(); d != 2 || r != 1 {
				t.Errorf("%d displaced, %d refused; want 2 and 1", d, r)
			}
			for _, conn := range c.h.conns {
				conn.Done("a")
			}
		})
	}
}

// TestIdleConnectionsMakeWayFirst: a connection with a request in flight stays as long as an idle one is there.
func TestIdleConnectionsMakeWayFirst(t *testing.T) {
	c := newCrowd(t, 3)
	idle := c.join(t, 1, 1)
	write(t, idle, request("a", "x"))
	wantToken(t, idle, "a", "x")
	for i := range 2 {
		nc := c.join(t, 1, i+2)
		write(t, nc, request("a", "stay"))
		c.h.wait(t, `request a "stay"`)
	}
	c.join(t, 2, 3)
	if m := answer(t, idle); m["code"] != string(wire.SessionLimit) {
		t.Errorf("%v", m)
	}
	c.h.wait(t, "closed displaced")
	if n := c.Stats().InFlight.Load(); n != 2 {
		t.Errorf("%d requests in flight, want 2", n)
	}
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	for _, conn := range c.h.conns {
		conn.Done("a")
	}
}
