package ipc

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// web runs an http.Server that answers "path body" on l until the test ends.
func web(t *testing.T, l *Loop) {
	srv := &http.Server{ConnContext: ConnContext, ConnState: ConnState,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", r.URL.Path, body)
		})}
	go srv.Serve(l.HTTP())
	t.Cleanup(func() { srv.Close() })
}

// burst connects n clients, lets all of them send at once what ask says, and returns each one's status and body; the
// connections stay open meanwhile.
func burst(t *testing.T, l *Loop, n int, ask func(i int) string) (status []int, bodies []string) {
	t.Helper()
	conns := make([]*net.UnixConn, n)
	for i := range conns {
		conns[i] = dial(t, l)
		conns[i].SetDeadline(time.Now().Add(waitfor.Limit))
	}
	status, bodies = make([]int, n), make([]string, n)
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			if _, err := c.Write([]byte(ask(i))); err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			status[i], bodies[i] = resp.StatusCode, string(b)
		})
	}
	wg.Wait()
	for _, c := range conns {
		c.Close()
	}
	return status, bodies
}

func getOrPost(i int) string {
	if i%2 == 0 {
		return fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i)
	}
	return fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", i)
}

// TestBurstLosesNobody: clients that connect first and then ask all at once are all answered.
func TestBurstLosesNobody(t *testing.T) {
	for _, n := range []int{300, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			raiseNoFile(t, uint64(4*n+200))
			l, _ := echoServer(t, Config{MaxSessions: n})
			web(t, l)
			status, bodies := burst(t, l, n, getOrPost)
			for i := range status {
				want := fmt.Sprintf("/%d %s", i, []string{"", "body"}[i%2])
				if status[i] != 200 || bodies[i] != want {
					t.Errorf("client %d: %d %q", i, status[i], bodies[i])
				}
			}
			if r := l.Stats().RefusedTotal(); r != 0 {
				t.Errorf("%d refused", r)
			}
		})
	}
}

// TestBurstOverTheLimit: beyond --max-sessions every client of a burst reads a JSON error over HTTP, and is counted.
func TestBurstOverTheLimit(t *testing.T) {
	const n, sessions = 300, 40
	raiseNoFile(t, 4*n+200)
	l, _ := echoServer(t, Config{MaxSessions: sessions})
	web(t, l)
	status, bodies := burst(t, l, n, getOrPost)
	served := 0
	for i := range status {
		if status[i] == 200 {
			served++
			continue
		}
		var m struct {
			Error struct {
				Code    int
				UmaCode string `json:"uma_code"`
			}
		}
		if err := json.Unmarshal([]byte(bodies[i]), &m); err != nil || status[i] != 503 || m.Error.Code != 503 ||
			m.Error.UmaCode != string(wire.SessionLimit) {
			t.Errorf("client %d: %d %q", i, status[i], bodies[i])
		}
	}
	if served != sessions {
		t.Errorf("%d served, want %d", served, sessions)
	}
	if r := l.Stats().Refused[OverSessions].Load(); r != n-sessions {
		t.Errorf("%d refusals counted, want %d", r, n-sessions)
	}
}

// TestRefusalWithoutDescriptors: clients that come when no descriptor is left are told so in their protocol, more of
// them than descriptors are reserved, and are counted. The first ones do not close their connections: the others wait
// until closeWithin has passed.
func TestRefusalWithoutDescriptors(t *testing.T) {
	l, _ := echoServer(t, Config{})
	web(t, l)
	type client struct{ say, want string }
	kinds := []client{
		{"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json"},
		{string(request("a", "x")), `"code":"E_LIMIT_SESSIONS"`},
		{"some text\n", "error: E_LIMIT_SESSIONS: "},
	}
	const n = 3 * reserved
	fds := make([]int, n)
	for i := range fds {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	exhaust(t)
	for i, fd := range fds {
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: l.SocketPath()}); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, []byte(kinds[i%3].say)); err != nil {
			t.Fatal(err)
		}
	}
	for i, fd := range fds {
		var got []byte
		for b := make([]byte, 4096); ; {
			n, err := unix.Read(fd, b)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			got = append(got, b[:n]...)
		}
		if !strings.Contains(string(got), kinds[i%3].want) ||
			!strings.Contains(string(got), "no file descriptor left") {
			t.Errorf("client %d reads %q", i, got)
		}
		if i >= reserved {
			unix.Shutdown(fd, unix.SHUT_RDWR)
		}
	}
	if r := l.Stats().Refused[NoDescriptor].Load(); r != n {
		t.Errorf("%d refusals counted, want %d", r, n)
	}
}

// TestMessageDeadline: a message that has begun has its time, however its bytes come.
func TestMessageDeadline(t *testing.T) {
	whole := request("a", "x")
	timeout := func(t *testing.T, r io.Reader, line bool) {
		t.Helper()
		b, err := io.ReadAll(r)
		if err != nil || !strings.Contains(string(b), string(wire.Timeout)) ||
			strings.HasPrefix(string(b), "error: ") != line {
			t.Errorf("%q, %v", b, err)
		}
	}
	for name, say := range map[string][]byte{
		"half a frame": whole[:20], "half a header": whole[:2], "a frame that is only announced": {0, 16, 0, 0},
		"half a line": []byte("half a line"),
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := echoServer(t, Config{MessageTimeout: 50 * time.Millisecond})
			c := dial(t, l)
			write(t, c, say)
			timeout(t, c, name == "half a line")
			if n := l.Stats().ProtocolErrors(wire.Timeout); n != 1 {
				t.Errorf("%d counted", n)
			}
			c.Close()
			eventually(t, "closed", func() bool { return l.Stats().Closed[TimedOut].Load() == 1 })
		})
	}
	t.Run("half a frame after a whole one", func(t *testing.T) {
		l, _ := echoServer(t, Config{MessageTimeout: 50 * time.Millisecond})
		c := dial(t, l)
		write(t, c, append(append([]byte{}, whole...), whole[:9]...))
		wantToken(t, c, "a", "x")
		timeout(t, c, false)
	})
	for name, head := range map[string][]byte{"a frame byte by byte": {0, 0, 15, 0},
		"a line byte by byte": []byte("text")} {
		t.Run(name, func(t *testing.T) {
			l, _ := echoServer(t, Config{MessageTimeout: 100 * time.Millisecond})
			c := dial(t, l)
			write(t, c, head)
			ended := make(chan []byte)
			go func() {
				b, _ := io.ReadAll(c)
				ended <- b
			}()
			for sent := len(head); ; sent++ { // the next byte when the last was read
				eventually(t, "read", func() bool {
					return l.Stats().RxBytes.Load() >= uint64(sent) || l.Stats().ProtocolErrors(wire.Timeout) > 0
				})
				if l.Stats().ProtocolErrors(wire.Timeout) > 0 {
					break
				}
				write(t, c, []byte{'x'})
			}
			c.CloseWrite()
			if b := <-ended; !strings.Contains(string(b), string(wire.Timeout)) {
				t.Errorf("%q", b)
			}
		})
	}
	t.Run("slow but in time", func(t *testing.T) {
		l, _ := echoServer(t, Config{MessageTimeout: time.Minute})
		c := dial(t, l)
		for range 3 { // the deadline of one message is not the next one's
			write(t, c, whole[:9])
			eventually(t, "half a frame is held", func() bool { return l.Info().RxHeldBytes > 0 })
			write(t, c, whole[9:])
			wantToken(t, c, "a", "x")
		}
	})
}
