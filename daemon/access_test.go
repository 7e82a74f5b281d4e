//go:build linux

package daemon

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/access"
	"github.com/uma-serve/uma-serve/daemon/access/apikeys"
	"github.com/uma-serve/uma-serve/internal/testutil/usertest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// addr is the i-th TCP address of a daemon.
func (r *running) addr(i int) netip.AddrPort { return r.in.Listeners[1+i].TCP() }

func (r *running) url(i int) string { return "http://" + r.addr(i).String() }

// webReply is an answer as far as these tests look at it.
type webReply struct {
	status int
	body   string
	header http.Header
}

// kind is the error's type, "" when there is none.
func (a webReply) kind() string {
	var e struct {
		Error struct{ Type string }
	}
	json.Unmarshal([]byte(a.body), &e)
	return e.Error.Type
}

// send makes a request with headers "Name: value", of which Host is special.
func send(t *testing.T, c *http.Client, method, url, body string, headers ...string) webReply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s %s %q: %v", method, url, headers, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: half an answer: %v", method, url, err)
	}
	return webReply{resp.StatusCode, string(b), resp.Header}
}

const completion1 = `{"prompt":"a prompt that is long enough to be cached and found again","max_tokens":2}`

func (r *running) refusals(reason string) uint64 { return r.metrics.HTTPRefused.Value(reason) }

// namespaces are the owners of cached prefixes.
func (r *running) namespaces() map[uint32]int {
	out := map[uint32]int{}
	r.inLoop(func(l *loop) {
		for _, e := range l.core.Tree().Entries(nil) {
			out[uint32(e.NS)]++
		}
	})
	return out
}

// TestTwoUsersOverTCP: without any key, each user has a namespace: a prompt that one user has computed is found by that
// user alone.
func TestTwoUsersOverTCP(t *testing.T) {
	usertest.NeedRoot(t)
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0,[::1]:0", "--listen-mode", "0666")
	cachedBy := func(c *http.Client, base string) int {
		t.Helper()
		a := send(t, c, "POST", base+"/v1/completions", completion1)
		var answer struct {
			Usage struct {
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil || a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return answer.Usage.Details.Cached
	}
	cached := func(uid uint32, i int) int { t.Helper(); return cachedBy(usertest.Client(t, uid), r.url(i)) }
	if n := cached(usertest.A, 0); n != 0 {
		t.Errorf("the first prompt: %d tokens are cached", n)
	}
	if n := cached(usertest.B, 0); n != 0 {
		t.Errorf("user B finds %d tokens of user A", n)
	}
	if n := cached(usertest.A, 1); n == 0 {
		t.Error("user A does not find its own prompt over IPv6")
	}
	if n := cached(usertest.B, 1); n == 0 {
		t.Error("user B does not find its own prompt over IPv6")
	}
	eventually(t, "the namespaces are those of the two users", func() bool {
		ns := r.namespaces()
		return len(ns) == 2 && ns[usertest.A] > 0 && ns[usertest.B] > 0
	})
	// The Unix socket's namespace of the same user is the same: root's prompt over TCP is found over the socket.
	cached(0, 0)
	if n := cachedBy(r.web(), "http://uma"); n == 0 {
		t.Error("root does not find its own prompt over the socket")
	}
}

// TestOtherUsersProcess: the same daemon judges processes that really run as another user.
func TestOtherUsersProcess(t *testing.T) {
	if url := os.Getenv("UMA_TEST_URL"); url != "" {
		resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(completion1))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		fmt.Printf("answer %d %s\n", resp.StatusCode, b)
		return
	}
	usertest.NeedRoot(t)
	for mode, want := range map[string]string{"0600": "answer 403", "0666": "answer 200"} {
		r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0", "--listen-mode", mode)
		out, err := usertest.Child(t, usertest.B, "TestOtherUsersProcess", "UMA_TEST_URL="+r.url(0)).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("--listen-mode %s: %v\n%s", mode, err, out)
		}
		if mode == "0600" &&
			!strings.Contains(string(out), fmt.Sprintf("user %d may not use this daemon", usertest.B)) {
			t.Errorf("the refusal does not name the user:\n%s", out)
		}
	}
}

// TestForeignRequests: what a web page of a stranger can send is refused, and what our own pages and programs send is
// not.
func TestForeignRequests(t *testing.T) {
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0", "--allowed-host", "llm.test", "--cors-origin",
		"http://localhost:3000")
	own := http.DefaultClient
	port := fmt.Sprint(r.addr(0).Port())
	for _, c := range []struct {
		method, path string
		headers      []string
		status       int
		reason       string
	}{
		{"GET", "/health", nil, 200, ""},
		{"GET", "/health", []string{"Host: localhost:" + port}, 200, ""},
		{"GET", "/health", []string{"Host: llm.test"}, 200, ""},
		{"GET", "/health", []string{"Host: evil.example"}, 403, access.RefusedHost},
		{"GET", "/health", []string{"Host: evil.example:" + port}, 403, access.RefusedHost},
		{"GET", "/metrics", []string{"Host: 10.0.0.1"}, 403, access.RefusedHost},
		{"POST", "/v1/completions", []string{"Host: evil.example", "Origin: http://evil.example"}, 403,
			access.RefusedHost},
		{"OPTIONS", "/v1/completions", []string{"Host: evil.example", "Origin: http://localhost:3000",
			"Access-Control-Request-Method: POST"}, 403, access.RefusedHost},
		{"POST", "/v1/completions", nil, 200, ""},
		{"POST", "/v1/completions", []string{"Origin: http://127.0.0.1:" + port}, 200, ""},
		{"POST", "/v1/completions", []string{"Origin: http://evil.example"}, 403, access.RefusedOrigin},
		{"POST", "/v1/completions", []string{"Origin: null"}, 403, access.RefusedOrigin},
		{"POST", "/v1/completions", []string{"Origin: http://127.0.0.1:1"}, 403, access.RefusedOrigin},
		{"POST", "/v1/completions", []string{"Sec-Fetch-Site: cross-site"}, 403, access.RefusedOrigin},
		{"DELETE", "/v1/models", []string{"Origin: http://evil.example"}, 403, access.RefusedOrigin},
		{"GET", "/v1/models", []string{"Origin: http://evil.example"}, 200, ""},
		{"POST", "/v1/completions", []string{"Origin: http://localhost:3000", "Sec-Fetch-Site: cross-site"}, 200, ""},
		{"OPTIONS", "/v1/completions", []string{"Origin: http://localhost:3000", "Access-Control-Request-Method: POST",
			"Access-Control-Request-Headers: authorization,content-type"}, 200, ""},
		{"OPTIONS", "/v1/completions", []string{"Origin: http://evil.example", "Access-Control-Request-Method: POST"},
			200, access.RefusedOrigin},
		{"GET", "/health", []string{"X-Forwarded-For: 192.0.2.1"}, 403, access.RefusedKey},
		{"GET", "/health", []string{"Forwarded: for=192.0.2.1"}, 403, access.RefusedKey},
		// without --api-keys a key means nothing
		{"GET", "/health", []string{"Authorization: Bearer whatever"}, 200, ""},
	} {
		before := map[string]uint64{}
		for _, reason := range []string{access.RefusedHost, access.RefusedOrigin, access.RefusedUser,
			access.RefusedKey} {
			before[reason] = r.refusals(reason)
		}
		body := ""
		if c.method == "POST" {
			body = completion1
		}
		a := send(t, own, c.method, r.url(0)+c.path, body, c.headers...)
		if a.status != c.status {
			t.Errorf("%s %s %q: %d %s", c.method, c.path, c.headers, a.status, a.body)
		}
		for reason, n := range before {
			want := n
			if reason == c.reason {
				want++
			}
			if got := r.refusals(reason); got != want {
				t.Errorf("%s %s %q: %d refusals by %s, want %d", c.method, c.path, c.headers, got, reason, want)
			}
		}
		allowed, page := a.header.Get("Access-Control-Allow-Origin"), ""
		for _, h := range c.headers {
			if h == "Origin: http://localhost:3000" && c.reason == "" {
				page = "http://localhost:3000"
			}
		}
		if allowed != page {
			t.Errorf("%s %s %q: Access-Control-Allow-Origin is %q", c.method, c.path, c.headers, allowed)
		}
	}
	// The Unix socket, which no browser reaches, asks none of this.
	if a := send(t, r.web(), "POST", "http://evil.example/v1/completions", completion1, "Origin: http://evil.example",
		"X-Forwarded-For: 192.0.2.1"); a.status != 200 {
		t.Errorf("over the socket: %d %s", a.status, a.body)
	}
}

func keyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAPIKeys: a key names an owner, whatever user sends it, owners are apart from each other and from users, and an
// unknown key is refused even where the user alone would be let in.
func TestAPIKeys(t *testing.T) {
	keys := keyFile(t, "key-of-alice-0123456789 alice\nkey-of-bob-0123456789 bob\n")
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0", "--api-keys", keys)
	alice, bob := "Authorization: Bearer key-of-alice-0123456789", "x-api-key: key-of-bob-0123456789"
	ask := func(headers ...string) webReply {
		t.Helper()
		return send(t, http.DefaultClient, "POST", r.url(0)+"/v1/completions", completion1, headers...)
	}
	for _, h := range [][]string{{alice}, {bob}, {"Authorization: bearer   key-of-alice-0123456789 "},
		{alice, "X-Forwarded-For: 192.0.2.1"}, {"Authorization: Bearer unknown", bob}, nil} {
		if a := ask(h...); a.status != 200 {
			t.Errorf("%q: %d %s", h, a.status, a.body)
		}
	}
	for _, h := range [][]string{{"Authorization: Bearer unknown"}, {"x-api-key: key-of-alice-012345678"},
		{"x-api-key: alice"}, {"X-Forwarded-For: 192.0.2.1"}, {"x-api-key: " + strings.Repeat("k", 5000)}} {
		a := ask(h...)
		if a.status != 401 || a.kind() != "authentication_error" || !strings.HasPrefix(a.header.Get("WWW-Authenticate"),
			"Bearer") {
			t.Errorf("%.60q: %d %s %v", h, a.status, a.body, a.header)
		}
		if strings.Contains(a.body, "key-of-alice-012345678") {
			t.Errorf("the answer repeats the key: %s", a.body)
		}
	}
	if n := r.refusals(access.RefusedKey); n != 5 {
		t.Errorf("%d refusals by key", n)
	}
	eventually(t, "three namespaces", func() bool {
		ns := r.namespaces()
		return len(ns) == 3 && ns[apikeys.OwnerID("alice")] > 0 && ns[apikeys.OwnerID("bob")] > 0 &&
			ns[uint32(os.Geteuid())] > 0
	})
	// The daemon's user sees the owners by name.
	c := r.dial()
	kv, err := c.KV(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	why, err := c.Why(t.Context(), wire.WhyQuestion{Last: 50})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range kv.Entries {
		names["kv "+e.Owner] = true
	}
	for _, q := range why.Requests {
		names["why "+q.Owner] = true
	}
	for _, name := range []string{"kv alice", "kv bob", "kv ", "why alice", "why bob", "why "} {
		if !names[name] {
			t.Errorf("%q is not among the owners %v", name, names)
		}
	}
	c.Close()
	// An owner sees itself alone, whatever its number.
	if r.cfg.Privileged(apikeys.OwnerID("alice")) {
		t.Error("the owner of a key may look at others' requests")
	}
	// A changed file counts at once; a broken one changes nothing.
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(keys+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(keys+".new", keys); err != nil {
			t.Fatal(err)
		}
	}
	replace("key-of-carol-0123456789 carol\n")
	if a := ask(alice); a.status != 401 {
		t.Errorf("a removed key: %d %s", a.status, a.body)
	}
	replace("broken\n")
	if a := ask("x-api-key: key-of-carol-0123456789"); a.status != 200 {
		t.Errorf("after a broken file: %d %s", a.status, a.body)
	}
	// Errors in the form of the API that is asked.
	if a := send(t, http.DefaultClient, "POST", r.url(0)+"/api/chat", "{}", "x-api-key: no"); a.status != 401 ||
		!strings.HasPrefix(a.body, `{"error":"this API key`) {
		t.Errorf("ollama's form: %d %s", a.status, a.body)
	}
	if a := send(t, http.DefaultClient, "POST", r.url(0)+"/v1/messages", "{}", "x-api-key: no"); a.status != 401 ||
		!strings.HasPrefix(a.body, `{"type":"error","error":{`) {
		t.Errorf("Anthropic's form: %d %s", a.status, a.body)
	}
}

// TestHealthWithoutKey: with --api-keys a client without a key learns the status and nothing else; without --api-keys
// a client that is not known learns nothing.
func TestHealthWithoutKey(t *testing.T) {
	keys := keyFile(t, "key-of-alice-0123456789 alice\n")
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0", "--api-keys", keys, "--listen-mode", "0000")
	for _, header := range []string{"Accept: */*", "x-api-key: wrong", "X-Forwarded-For: 192.0.2.1"} {
		for _, path := range []string{"/health", "/v1/health"} {
			if a := send(t, http.DefaultClient, "GET", r.url(0)+path, "", header); a.status != 200 ||
				strings.TrimSpace(a.body) != `{"status":"ok"}` {
				t.Errorf("%s %q: %d %s", path, header, a.status, a.body)
			}
		}
	}
	a := send(t, http.DefaultClient, "GET", r.url(0)+"/health", "", "x-api-key: key-of-alice-0123456789")
	if a.status != 200 || !strings.Contains(a.body, "uptime_ms") {
		t.Errorf("with a key: %d %s", a.status, a.body)
	}
	for _, c := range []struct {
		method, path string
		header       []string
		status       int
	}{
		{"POST", "/health", nil, 401}, {"GET", "/info", nil, 401}, {"GET", "/metrics", nil, 401},
		{"GET", "/", nil, 200}, {"GET", "/page/main.js", nil, 200}, {"GET", "/sw.js", nil, 200},
		{"GET", "/manifest.webmanifest", nil, 200}, {"GET", "/_app/version.json", nil, 200},
		{"GET", "/live", nil, 401}, {"GET", "/v1/models", nil, 401}, {"POST", "/", nil, 401},
		{"GET", "/", []string{"Host: evil.example"}, 403},
		{"GET", "/health", []string{"Host: evil.example"}, 403},
		{"POST", "/completion", nil, 401}, {"POST", "/completion", []string{"Authorization: Bearer wrong"}, 401},
	} {
		a := send(t, http.DefaultClient, c.method, r.url(0)+c.path, "", c.header...)
		if a.status != c.status || c.status == 401 && !strings.Contains(a.body, `"type":"authentication_error"`) {
			t.Errorf("%s %s %q: %d %s", c.method, c.path, c.header, a.status, a.body)
		}
	}
	r = serve(t, fake.Config{}, "--listen", "127.0.0.1:0")
	if a := send(t, http.DefaultClient, "GET", r.url(0)+"/health", "", "X-Forwarded-For: 192.0.2.1"); a.status != 403 {
		t.Errorf("without --api-keys: %d %s", a.status, a.body)
	}
}

// TestPagesWithKeys: where every client needs a key, pages of all origins may use the server with theirs; a
// --cors-origin, or a user who needs no key, keeps them out.
func TestPagesWithKeys(t *testing.T) {
	keys := keyFile(t, "key-of-alice-0123456789 alice\n")
	const origin, key = "Origin: https://chat.example.org", "Authorization: Bearer key-of-alice-0123456789"
	for _, c := range []struct {
		args []string
		any  bool
	}{
		{[]string{"--listen-mode", "0000"}, true},
		{[]string{"--listen-mode", "0000", "--cors-origin", "https://other.example.org"}, false},
		{[]string{"--listen-mode", "0600"}, false},
	} {
		r := serve(t, fake.Config{}, append(c.args, "--listen", "127.0.0.1:0", "--api-keys", keys)...)
		allowed, status := "", 403
		if c.any {
			allowed, status = "https://chat.example.org", 200
		}
		a := send(t, http.DefaultClient, "OPTIONS", r.url(0)+"/v1/completions", "", origin,
			"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
		if got := a.header.Get("Access-Control-Allow-Origin"); a.status != 200 || got != allowed {
			t.Errorf("%v: preflight: %d, %q", c.args, a.status, got)
		}
		a = send(t, http.DefaultClient, "POST", r.url(0)+"/v1/completions", completion1, origin, key)
		if got := a.header.Get("Access-Control-Allow-Origin"); a.status != status || got != allowed {
			t.Errorf("%v: with a key: %d, %q: %s", c.args, a.status, got, a.body)
		}
		if got := a.header.Get("Access-Control-Allow-Credentials") == "true"; got != c.any {
			t.Errorf("%v: what the browser keeps may be sent: %v", c.args, got)
		}
		if a = send(t, http.DefaultClient, "POST", r.url(0)+"/v1/completions", completion1, origin); a.status == 200 {
			t.Errorf("%v: without a key: %d %s", c.args, a.status, a.body)
		}
	}
}

// TestKeyForOtherUsers: a key admits a user that --listen-mode refuses; under --listen-mode 0000 every client needs a
// key.
func TestKeyForOtherUsers(t *testing.T) {
	usertest.NeedRoot(t)
	keys := keyFile(t, "key-of-alice-0123456789 alice\n")
	for mode, root := range map[string]int{"0600": 200, "0000": 401} {
		r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0", "--api-keys", keys, "--listen-mode", mode)
		for _, c := range []struct {
			uid    uint32
			header []string
			status int
		}{
			{0, nil, root}, {usertest.A, nil, 401}, {usertest.A, []string{"x-api-key: key-of-alice-0123456789"}, 200},
			{usertest.A, []string{"x-api-key: wrong"}, 401}, {0, []string{"x-api-key: wrong"}, 401},
		} {
			if a := send(t, usertest.Client(t, c.uid), "GET", r.url(0)+"/v1/models", "",
				c.header...); a.status != c.status {
				t.Errorf("--listen-mode %s: user %d %q: %d %s", mode, c.uid, c.header, a.status, a.body)
			}
		}
		// An id that an owner of a key could have is no user's.
		if a := send(t, usertest.Client(t, apikeys.OwnerID("alice")), "GET", r.url(0)+"/v1/models",
			""); a.status != 503 || !strings.Contains(a.body, "reserved") {
			t.Errorf("a user id of an owner: %d %s", a.status, a.body)
		}
	}
}

// TestRefusedBodyIsNotRead: a refused client gets its answer before it has sent its body, and holds no connection.
func TestRefusedBodyIsNotRead(t *testing.T) {
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0")
	c, err := net.Dial("tcp", r.addr(0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(waitfor.Limit))
	fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 900000\r\n\r\n{")
	br := bufio.NewReader(c)
	if status, body := response(t, br); status != 403 || !strings.Contains(body, "evil.example") {
		t.Errorf("%d %s", status, body)
	}
	if b, err := io.ReadAll(br); len(b) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("then %q, %v", b, err)
	}
	eventually(t, "the session is free", func() bool { return r.poller.Stats().Sessions.Load() == 0 })
}

// TestHostileTCP: the limits of the socket hold over TCP: deadlines for headers and bodies, sizes, and many connections
// of one user never keep another out.
func TestHostileTCP(t *testing.T) {
	usertest.NeedRoot(t)
	const sessions = 40
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0", "--listen-mode", "0666", "--max-sessions",
		fmt.Sprint(sessions), "--body-timeout", "2s", "--header-timeout", "2s")
	asks := []struct {
		say    string
		status int // 0: closed without an answer
	}{
		{"", 0}, {"P", 408}, {"POST", 408}, {"GET /health HTTP/1.1\r\nHost: 127.0", 408},
		{"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"pro", 408},
		{"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413},
		{"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", 431},
		{"GET /health HTTP/1.1\r\n\r\n", 400}, // HTTP/1.1 without Host
		{"GET /health HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n", 400},
		{"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 403},
		{"\x00\x00\x00\x00\x00\x00", 400},
	}
	var conns []net.Conn
	for i := range sessions {
		c, err := usertest.Dial(usertest.A, r.addr(0))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(c, asks[i%len(asks)].say)
		conns = append(conns, c)
	}
	if a := send(t, usertest.Client(t, usertest.B), "GET", r.url(0)+"/health", ""); a.status != 200 {
		t.Errorf("another user: %d %s", a.status, a.body)
	}
	for i, c := range conns {
		ask := asks[i%len(asks)]
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		switch {
		case err != nil && ask.status == 0:
		case err != nil:
			t.Errorf("%.60q: %v", ask.say, err)
		case resp.StatusCode != ask.status && resp.StatusCode != 503: // 503: made way for the other user
			t.Errorf("%.60q: %s", ask.say, resp.Status)
		}
		c.Close()
	}
	eventually(t, "the sessions are free", func() bool { return r.poller.Stats().Sessions.Load() <= 1 })
	r.nothingLeft()
}

// TestFlood: connections that are made and dropped by the hundred, by two users, leave nothing behind.
func TestFlood(t *testing.T) {
	usertest.NeedRoot(t)
	r := serve(t, fake.Config{}, "--listen", "127.0.0.1:0", "--listen-mode", "0666")
	var wg sync.WaitGroup
	for _, uid := range []uint32{usertest.A, usertest.B} {
		wg.Go(func() {
			for i := range 200 {
				c, err := usertest.Dial(uid, r.addr(0))
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					io.WriteString(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
				}
				if i%6 == 0 {
					io.Copy(io.Discard, io.LimitReader(c, 1))
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "the sessions are free", func() bool { return r.poller.Stats().Sessions.Load() == 0 })
	r.nothingLeft()
}

// TestListenersAreShown: info, health, metrics and the log name the addresses.
func TestListenersAreShown(t *testing.T) {
	var log bytes.Buffer
	var mu sync.Mutex
	r := serveLogging(t, slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(b)
	}), nil)), fake.Config{}, "--listen", "127.0.0.1:0", "--listen-mode", "0660")
	send(t, http.DefaultClient, "GET", r.url(0)+"/health", "")
	in, h := r.info(), r.health()
	if len(in.Listeners) != 2 || in.Listeners[0].Network != "unix" || in.Listeners[0].Address != r.cfg.Socket ||
		in.Listeners[1] != (reports.InfoListener{
			Network: "tcp", Address: r.addr(0).String(), Accepted: 1, Users: "uid", Mode: "0660"}) {
		t.Errorf("info: %+v", in.Listeners)
	}
	if len(h.Listen) != 2 || h.Listen[0] != "unix://"+r.cfg.Socket || h.Listen[1] != r.url(0) {
		t.Errorf("health: %q", h.Listen)
	}
	if a := send(t, http.DefaultClient, "GET", r.url(0)+"/metrics", ""); !strings.Contains(a.body,
		fmt.Sprintf(`uma_connections_accepted_by_listener_total{listener="%s"} `, r.addr(0))) ||
		!strings.Contains(a.body, `uma_http_requests_refused_total{reason="origin"} 0`) {
		t.Errorf("metrics over TCP:\n%s", a.body)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "msg=listening url="+r.url(0)) {
		t.Errorf("the log does not name the address:\n%s", &log)
	}
}

// TestListenAtStart: keys and a group that do not exist end the start, with the name of the option.
func TestListenAtStart(t *testing.T) {
	start := func(args ...string) error {
		c, err := load(t, append([]string{"--socket", filepath.Join(t.TempDir(), "s"), "--listen", "127.0.0.1:0"},
			args...), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(c, slog.New(slog.DiscardHandler))
		if err == nil {
			for _, ln := range s.in.Listeners {
				ln.Close()
			}
		}
		return err
	}
	missing := filepath.Join(t.TempDir(), "none")
	for want, args := range map[string][]string{
		"--api-keys: " + missing + ": there is no such file":      {"--api-keys", missing},
		`--listen-group is "nosuchgroup": there is no such group`: {"--listen-group", "nosuchgroup"},
	} {
		if err := start(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestKeysOnEveryAddress: with keys an address that other machines reach is served, to keys alone; clients over the
// loopback address of it are still told by the kernel.
func TestKeysOnEveryAddress(t *testing.T) {
	keys := keyFile(t, "key-of-alice-0123456789 alice\n")
	r := serve(t, fake.Config{}, "--listen", "0.0.0.0:0", "--api-keys", keys)
	port := r.addr(0).Port()
	if a := send(t, http.DefaultClient, "GET", fmt.Sprintf("http://127.0.0.1:%d/v1/models", port),
		""); a.status != 200 {
		t.Errorf("over the loopback address: %d %s", a.status, a.body)
	}
	outside := outsideAddress()
	if !outside.IsValid() {
		t.Skip("SKIPPED: this machine has no address besides the loopback one")
	}
	url := fmt.Sprintf("http://%s/v1/models", netip.AddrPortFrom(outside, port))
	if a := send(t, http.DefaultClient, "GET", url, ""); a.status != 401 ||
		!strings.Contains(a.body, "not come from this machine's loopback address") {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
	if a := send(t, http.DefaultClient, "GET", url, "", "x-api-key: key-of-alice-0123456789"); a.status != 200 {
		t.Errorf("with a key: %d %s", a.status, a.body)
	}
}

// outsideAddress is an IPv4 address of this machine that is no loopback address; it is not valid if there is none.
func outsideAddress() netip.Addr {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap().Is4() && !ip.IsLoopback() {
				return ip.Unmap()
			}
		}
	}
	return netip.Addr{}
}
