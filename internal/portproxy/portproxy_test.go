package portproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

var anyPort = netip.MustParseAddrPort("127.0.0.1:0")

// daemon is the proxy's backend in these tests, without a socket.
type daemon struct{ handle http.HandlerFunc }

func (d daemon) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.handle == nil {
		return nil, errors.New("no uma-serve daemon answers")
	}
	pr, pw := io.Pipe()
	w := &writer{header: http.Header{}, body: pw, begun: make(chan int, 1)}
	go func() {
		d.handle(w, r)
		w.WriteHeader(200)
		pw.Close()
	}()
	select {
	case status := <-w.begun:
		return &http.Response{StatusCode: status, Header: w.header.Clone(), Body: pr, ContentLength: -1, Request: r,
			ProtoMajor: 1, ProtoMinor: 1}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

type writer struct {
	header http.Header
	body   io.Writer
	begun  chan int
	sent   bool
}

func (w *writer) Header() http.Header { return w.header }
func (w *writer) WriteHeader(status int) {
	if !w.sent {
		w.sent = true
		w.begun <- status
	}
}
func (w *writer) Write(b []byte) (int, error) { w.WriteHeader(200); return w.body.Write(b) }

func start(t *testing.T, handle http.HandlerFunc, edit ...func(*Proxy)) *Proxy {
	t.Helper()
	return serve(t, daemon{handle}, edit...)
}

func serve(t *testing.T, forward http.RoundTripper, edit ...func(*Proxy)) *Proxy {
	t.Helper()
	p, err := Listen(anyPort, forward)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range edit {
		e(p)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve() }()
	t.Cleanup(func() {
		p.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p
}

func do(t *testing.T, method, url, body string, headers ...string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ": ")
		if !ok {
			continue
		}
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
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
	return resp.StatusCode, string(b)
}

func echo(w http.ResponseWriter, r *http.Request) {
	var b []byte
	if r.Body != nil {
		b, _ = io.ReadAll(r.Body)
	}
	fmt.Fprintf(w, "%s %s %s %q", r.Method, r.URL.RequestURI(), b, r.Header.Get("X-Forwarded-For"))
}

// TestForward: method, path, query and body reach the daemon, and no header says that a proxy is between.
func TestForward(t *testing.T) {
	p := start(t, echo)
	if status, text := do(t, "POST", p.URL()+"/v1/x?y=1&z=%2F", "body", "X-Forwarded-For: 192.0.2.1"); status != 200 ||
		text != `POST /v1/x?y=1&z=%2F body ""` {
		t.Errorf("%d %s", status, text)
	}
	p = start(t, nil)
	if status, text := do(t, "GET", p.URL()+"/health", ""); status != 502 ||
		!strings.Contains(text, "the daemon does not answer: no uma-serve daemon answers") {
		t.Errorf("%d %s", status, text)
	}
}

// TestStream: events pass on as they come, and a client that goes ends the request.
func TestStream(t *testing.T) {
	ended := make(chan struct{})
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithTimeout(t.Context(), waitfor.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", p.URL()+"/v1/chat/completions", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 9)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "data: 1\n\n" {
		t.Errorf("%q, %v", b, err)
	}
	resp.Body.Close()
	waitfor.Recv(t, "the request ends with its client", ended)
}

// TestStrangers: web pages of other origins and names are refused, and so is who does not have the key where one is
// needed.
func TestStrangers(t *testing.T) {
	p := start(t, echo)
	for _, c := range []struct {
		method, header string
		status         int
	}{
		{"POST", "", 200}, {"POST", "Origin: " + p.URL(), 200}, {"GET", "Host: localhost", 200},
		{"POST", "Origin: http://evil.example", 403}, {"GET", "Host: evil.example", 403},
		{"POST", "Sec-Fetch-Site: cross-site", 403},
	} {
		if p.NeedsKey() {
			t.Skip("SKIPPED: this system does not tell users")
		}
		if status, text := do(t, c.method, p.URL()+"/v1/x", "", c.header); status != c.status {
			t.Errorf("%s %q: %d %s", c.method, c.header, status, text)
		}
	}
	p = start(t, echo, func(p *Proxy) { p.closeFinder(); p.finder, p.key = nil, "the-key" })
	for header, want := range map[string]int{
		"": 401, "Authorization: Bearer the-key": 200, "x-api-key: the-key": 200, "Authorization: Bearer the-ke": 401,
		"x-api-key: other": 401, "Authorization: the-key": 401,
	} {
		if status, text := do(t, "GET", p.URL()+"/v1/x", "", header); status != want {
			t.Errorf("%q: %d %s", header, status, text)
		}
	}
	if env := strings.Join(p.Env(), "\n"); !strings.Contains(env, "OPENAI_API_KEY=the-key\n") ||
		!strings.Contains(env, "OPENAI_BASE_URL="+p.URL()+"/v1\n") ||
		!strings.Contains(env, "OLLAMA_HOST="+p.URL()+"\n") {
		t.Errorf("the environment is\n%s", env)
	}
	if status, text := do(t, "GET", p.URL()+"/api/tags", ""); status != 401 || !strings.HasPrefix(text, `{"error":"`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestHalfRequests: clients that send nothing whole are gone with the proxy.
func TestHalfRequests(t *testing.T) {
	p := start(t, echo)
	for _, say := range []string{"", "GET", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1",
		"\x16\x03\x01"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(waitfor.Limit))
		io.WriteString(c, say)
	}
}

func TestListenErrors(t *testing.T) {
	for _, a := range []string{"0.0.0.0:0", "192.0.2.1:80", "[::]:0"} {
		if _, err := Listen(netip.MustParseAddrPort(a), daemon{}); err == nil ||
			!strings.Contains(err.Error(), "no loopback address") {
			t.Errorf("%s: %v", a, err)
		}
	}
}

// TestPageURL: where the kernel does not tell users, the page's address lets a browser in, once; its cookie keeps it
// in.
func TestPageURL(t *testing.T) {
	handle := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " ", r.URL) }
	if p := start(t, handle, func(p *Proxy) { p.key = "" }); p.PageURL() != p.URL()+"/" {
		t.Errorf("without a key the page is %s", p.PageURL())
	}
	p := start(t, handle, func(p *Proxy) { p.closeFinder(); p.finder, p.key = nil, "SECRET" })
	for _, path := range []string{"/", "/live", "/?key=GUESS", "/live?key=SECRET"} {
		if status, text := do(t, "GET", p.URL()+path, ""); status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: waitfor.Limit}
	for _, url := range []string{p.PageURL(), p.URL() + "/live"} {
		resp, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || strings.Contains(string(text), "SECRET") ||
			strings.Contains(resp.Request.URL.String(), "SECRET") {
			t.Errorf("%s: %d %s %v", url, resp.StatusCode, text, err)
		}
	}
}
