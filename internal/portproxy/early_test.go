package portproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// lateConn returns from the write that holds the end of a request only after answered is closed.
type lateConn struct {
	net.Conn
	end      string
	answered <-chan struct{}
}

func (c lateConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if strings.HasSuffix(string(b), c.end) {
		<-c.answered
	}
	return n, err
}

// traced is a transport that tells when a request has been written, and with what error.
type traced struct {
	http.RoundTripper
	wrote chan error
}

func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { t.wrote <- i.Err }}
	return t.RoundTripper.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// TestAnswerBeforeTheRequestIsWritten: an answer that begins before the proxy's transport has looked for the end of the
// request's body comes whole. A browser on a slow machine lost such answers.
func TestAnswerBeforeTheRequestIsWritten(t *testing.T) {
	const end = "the end of the body"
	answered, wrote, rest := make(chan struct{}), make(chan error, 1), make(chan struct{})
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d bytes, %v", len(b), err)
		http.NewResponseController(w).Flush()
		<-rest
		io.WriteString(w, ", and the rest")
	}))
	defer daemon.Close()
	var d net.Dialer
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := d.DialContext(ctx, "tcp", daemon.Listener.Addr().String())
		return lateConn{c, end, answered}, err
	}}
	defer transport.CloseIdleConnections()
	p := serve(t, traced{transport, wrote})
	// A body beyond the transport's buffer is sent before the transport looks for its end.
	body := strings.Repeat("x", 100000) + end
	resp, err := http.Post(p.URL()+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(answered)
	if err := waitfor.Recv(t, "the request is written", wrote); err != nil {
		t.Errorf("writing the request: %v", err)
	}
	close(rest)
	want := fmt.Sprintf("%d bytes, <nil>, and the rest", len(body))
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != want {
		t.Errorf("%q, %v; want %q", b, err, want)
	}
}
