package webguard

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestHost(t *testing.T) {
	g, err := New([]string{"llm.example.org", "[2001:db8::1]", "GPUBox"}, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	local := netip.MustParseAddr("192.168.7.5")
	for host, ok := range map[string]bool{
		"": true, "localhost": true, "localhost:8737": true, "LOCALHOST:1": true, "localhost.": true,
		"a.localhost:5": true,
		"127.0.0.1":     true, "127.0.0.1:8737": true, "127.9.9.9:1": true, "[::1]": true, "[::1]:8737": true,
		"[::ffff:127.0.0.1]:1": true,
		"192.168.7.5":          true, "192.168.7.5:8737": true, "llm.example.org": true, "LLM.example.org:443": true,
		"gpubox:1": true, "[2001:db8::1]:1": true,
		"evil.example": false, "evil.example:8737": false, "localhost.evil.example": false,
		"127.0.0.1.evil.example": false,
		"192.168.7.6":            false, "10.0.0.1:8737": false, "0.0.0.0:8737": false, "[::]": false,
		"llm.example.org.evil": false, "xlocalhost": false,
		"127.0.0.1:8737:1": false, "[::1": true, "2130706433": false, "0x7f000001": false, "127.1": false,
		"localhost@evil.example": false,
		"evil.example#localhost": false, "[evil.example]": false, "[::1]evil.example": false, "[::1].": false,
		"\u212alocalhost": false,
	} {
		r := &http.Request{Method: "GET", Host: host, Header: http.Header{}}
		if err := g.CheckHost(r, local); (err == nil) != ok {
			t.Errorf("Host %q: %v", host, err)
		}
	}
}

func TestOrigin(t *testing.T) {
	for _, c := range []struct {
		allowed []string
		method  string
		header  string // "Name: value; Name: value"
		ok      bool
	}{
		{nil, "POST", "", true},
		{nil, "POST", "Origin: http://127.0.0.1:8737", true},
		{nil, "POST", "Origin: https://127.0.0.1:8737", true}, // behind a proxy that ends TLS
		{nil, "POST", "Origin: http://127.0.0.1:3000", false},
		{nil, "POST", "Origin: http://localhost:8737", false},
		{nil, "POST", "Origin: http://evil.example", false},
		{nil, "POST", "Origin: null", false},
		{nil, "PUT", "Origin: http://evil.example", false},
		{nil, "DELETE", "Origin: http://evil.example", false},
		{nil, "BREW", "Origin: http://evil.example", false},
		{nil, "GET", "Origin: http://evil.example", true},
		{nil, "POST", "Sec-Fetch-Site: cross-site", false},
		{nil, "POST", "Sec-Fetch-Site: same-site; Origin: http://127.0.0.1:3000", false},
		{nil, "POST", "Sec-Fetch-Site: same-origin; Origin: http://127.0.0.1:8737", true},
		{nil, "POST", "Sec-Fetch-Site: none", true},
		{[]string{"http://localhost:3000"}, "POST", "Origin: http://localhost:3000; Sec-Fetch-Site: cross-site", true},
		{[]string{"http://localhost:3000"}, "POST", "Origin: http://localhost:3001", false},
		{[]string{"http://localhost:3000"}, "POST", "Origin: http://localhost:3000.evil.example", false},
		{[]string{"*"}, "POST", "Origin: http://evil.example; Sec-Fetch-Site: cross-site", true},
		{[]string{"*"}, "POST", "Origin: null", true},
		{[]string{Local}, "POST", "Origin: http://localhost", true},
		{[]string{Local}, "POST", "Origin: http://app.localhost:3000; Sec-Fetch-Site: cross-site", true},
		{[]string{Local}, "POST", "Origin: https://127.0.0.1:3000", true},
		{[]string{Local}, "POST", "Origin: http://[::1]:3000", true},
		{[]string{Local}, "POST", "Origin: http://notlocalhost", false},
		{[]string{Local}, "POST", "Origin: http://localhost.evil.example", false},
		{[]string{Local}, "POST", "Origin: http://127.0.0.1.evil.example", false},
		{[]string{Local}, "POST", "Origin: http://x@localhost", false},
		{[]string{Local}, "POST", "Origin: http://localhost/", false},
		{[]string{Local}, "POST", "Origin: chrome-extension://localhost", false},
		{[]string{Local}, "POST", "Origin: null", false},
		{[]string{Local, "https://a.example"}, "POST", "Origin: https://a.example", true},
	} {
		g, err := New(nil, c.allowed, false)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8737/v1/completions", nil)
		setHeaders(r, c.header)
		if err := g.CheckOrigin(r); (err == nil) != c.ok {
			t.Errorf("%v: %s with %q: %v", c.allowed, c.method, c.header, err)
		}
	}
}

func setHeaders(r *http.Request, text string) {
	for field := range strings.SplitSeq(text, "; ") {
		if name, value, ok := strings.Cut(field, ": "); ok {
			r.Header.Set(name, value)
		}
	}
}

func TestCORS(t *testing.T) {
	const page = "https://chat.example.org"
	for _, c := range []struct {
		allowed        []string
		method, header string
		done, ok       bool
		status         int
		origin         string // Access-Control-Allow-Origin
	}{
		{nil, "GET", "Origin: " + page, false, true, 200, ""},
		{nil, "OPTIONS", "Origin: " + page + "; Access-Control-Request-Method: POST", false, false, 200, ""},
		{[]string{page}, "GET", "", false, true, 200, ""},
		{[]string{page}, "GET", "Origin: " + page, false, true, 200, page},
		{[]string{page}, "GET", "Origin: https://evil.example", false, true, 200, ""},
		{[]string{page}, "OPTIONS", "Origin: " + page + "; Access-Control-Request-Method: POST; " +
			"Access-Control-Request-Headers: authorization,content-type,x-stainless-os", true, true, 200, page},
		{[]string{page}, "OPTIONS", "Origin: https://evil.example; Access-Control-Request-Method: POST", false, false,
			200, ""},
		{[]string{"*"}, "OPTIONS", "Origin: https://any.example; Access-Control-Request-Method: DELETE", true, true,
			200, "https://any.example"},
		{[]string{page}, "OPTIONS", "Origin: " + page, false, true, 200, page}, // no preflight
		{[]string{Local}, "OPTIONS", "Origin: http://[::1]:3000; Access-Control-Request-Method: POST", true, true,
			200, "http://[::1]:3000"},
		{[]string{Local}, "OPTIONS", "Origin: http://evil.example; Access-Control-Request-Method: POST", false, false,
			200, ""},
	} {
		g, err := New(nil, c.allowed, false)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(c.method, "http://127.0.0.1:8737/v1/completions", nil)
		setHeaders(r, c.header)
		w := httptest.NewRecorder()
		done, err := g.CORS(w, r)
		if done != c.done || (err == nil) != c.ok || w.Code != c.status ||
			w.Header().Get("Access-Control-Allow-Origin") != c.origin {
			t.Errorf("%v: %s with %q: done %v, %v, %d, %v", c.allowed, c.method, c.header, done, err, w.Code,
				w.Header())
		}
		if w.Header().Get("Access-Control-Allow-Credentials") != "" {
			t.Error("credentials are allowed")
		}
		if g, err = New(nil, c.allowed, true); err != nil {
			t.Fatal(err)
		}
		w2 := httptest.NewRecorder()
		g.CORS(w2, r)
		if got := w2.Header().Get("Access-Control-Allow-Credentials") == "true"; got != (c.origin != "") {
			t.Errorf("%v: %s with %q: credentials are allowed: %v", c.allowed, c.method, c.header, got)
		}
		if len(c.allowed) > 0 && !strings.Contains(strings.Join(w.Header().Values("Vary"), ","), "Origin") && c.ok {
			t.Errorf("%v: %s with %q: no Vary: %v", c.allowed, c.method, c.header, w.Header())
		}
		if c.done && c.allowed[0] == page && w.Result().Header.Get("Access-Control-Allow-Methods") != methods {
			t.Errorf("%s: the methods are %q", c.origin, w.Result().Header.Get("Access-Control-Allow-Methods"))
		}
		if c.done && (w.Header().Get("Access-Control-Allow-Methods") == "" || c.allowed[0] == page &&
			!strings.Contains(w.Header().Get("Access-Control-Allow-Headers"), "authorization")) {
			t.Errorf("preflight: %v", w.Header())
		}
	}
}

func TestNames(t *testing.T) {
	for _, h := range []string{"", "http://x", "x:80", "*", "a b", "x/y", "[::1]:80"} {
		if _, err := New([]string{h}, nil, false); err == nil {
			t.Errorf("host %q is accepted", h)
		}
	}
	for _, o := range []string{"", "x", "http://", "http://x/", "http://x/y", "http://X", "http://u@x", "null",
		"http://x?y", "//x"} {
		if _, err := New(nil, []string{o}, false); err == nil {
			t.Errorf("origin %q is accepted", o)
		}
	}
	for _, o := range []string{"http://x", "https://x:8443", "app://obsidian.md", "chrome-extension://abcdef", "*",
		Local} {
		if _, err := New(nil, []string{o}, false); err != nil {
			t.Errorf("origin %q: %v", o, err)
		}
	}
}

// FuzzHost: a Host header that passes is a loopback name or address, or the address that the client has reached.
func FuzzHost(f *testing.F) {
	for _, h := range []string{"localhost:1", "[::1]:80", "evil.example", "127.0.0.1", "[::ffff:7f00:1]:1", ""} {
		f.Add(h)
	}
	g, err := New(nil, nil, false)
	if err != nil {
		f.Fatal(err)
	}
	local := netip.MustParseAddr("192.0.2.5")
	f.Fuzz(func(t *testing.T, host string) {
		if g.CheckHost(&http.Request{Host: host, Header: http.Header{}}, local) != nil {
			return
		}
		n := name(host)
		a, err := netip.ParseAddr(n)
		if n != "" && n != "localhost" && !strings.HasSuffix(n, ".localhost") &&
			(err != nil || !a.Unmap().IsLoopback() && a != local) {
			t.Errorf("Host %q passes as %q", host, n)
		}
	})
}
