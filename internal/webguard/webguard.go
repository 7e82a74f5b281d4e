// Package webguard keeps web pages of strangers away from an HTTP server on a TCP port of this machine.
//
// A browser sends requests to any address for any page. A page reaches such a server in two ways: by its own name,
// which its DNS server then resolves to 127.0.0.1 (DNS rebinding; the Host header tells), and by a request across
// origins (the Origin and Sec-Fetch-Site headers tell). Programs other than browsers send no Origin and pass.
package webguard

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/rs/cors"
)

// Guard checks requests. It is safe for concurrent use.
type Guard struct {
	hosts  []string // in lower case
	any    bool     // every origin is allowed
	local  bool     // every origin of this machine is allowed
	cross  *http.CrossOriginProtection
	shared *cors.Cors // nil: no origin is allowed
}

// New returns a Guard that accepts these names and addresses in the Host header, besides the loopback ones and the
// address that the client has reached, and answers pages of these origins: scheme://host[:port], Local, or * for all.
// With credentials the pages may send what the browser keeps for this server's name, cookies too.
func New(hosts, origins []string, credentials bool) (*Guard, error) {
	g := &Guard{cross: http.NewCrossOriginProtection()}
	for _, h := range hosts {
		if err := CheckHostName(h); err != nil {
			return nil, err
		}
		g.hosts = append(g.hosts, name(h))
	}
	for _, o := range origins {
		if err := CheckOriginName(o); err != nil {
			return nil, err
		}
		switch o {
		case "*":
			g.any = true
		case Local:
			g.local = true
		default:
			if err := g.cross.AddTrustedOrigin(strings.ToLower(o)); err != nil {
				return nil, err
			}
		}
	}
	if len(origins) > 0 {
		g.shared = cors.New(cors.Options{
			AllowOriginFunc: func(origin string) bool { return g.all(origin) || slices.Contains(origins, origin) },
			AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
				http.MethodPatch, http.MethodDelete},
			AllowedHeaders: []string{"*"}, ExposedHeaders: []string{"Retry-After", "WWW-Authenticate"},
			AllowPrivateNetwork: true, AllowCredentials: credentials, MaxAge: preflightSeconds,
			OptionsSuccessStatus: http.StatusOK, // some old browsers take no 204
		})
	}
	return g, nil
}

// Local stands for the origins of this machine: localhost, names below it, and loopback addresses, on every port.
const Local = "localhost"

// all reports whether a page is allowed by its origin's kind: every origin is, or every one of this machine.
func (g *Guard) all(origin string) bool {
	if g.any || !g.local {
		return g.any
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || origin != u.Scheme+"://"+u.Host {
		return false
	}
	host := name(u.Host)
	a, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && a.Unmap().IsLoopback()
}

// methods are those that a page of an allowed origin may use, as llama-server lists them.
const methods = "GET, POST, DELETE, OPTIONS"

// preflightSeconds is the time, in seconds, for which a browser may cache the answer to a preflight request.
const preflightSeconds = 600

// CheckHostName says what is wrong with a name for New's hosts.
func CheckHostName(h string) error {
	if h == "" || strings.ContainsAny(h, "/*@ \t") || name(h) == "" || len(h) > 255 {
		return fmt.Errorf("%q is no host name; it must be a name or an address without a port, such as llm.example.org",
			h)
	}
	if _, err := netip.ParseAddr(strings.Trim(h, "[]")); err != nil && strings.Contains(h, ":") {
		return fmt.Errorf("%q has a port; name the host alone", h)
	}
	return nil
}

// CheckOriginName says what is wrong with an origin for New's origins.
func CheckOriginName(o string) error {
	if o == "*" || o == Local {
		return nil
	}
	u, err := url.Parse(o)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" ||
		u.User != nil || o != strings.ToLower(o) {
		return fmt.Errorf("%q is no origin; it must be as browsers send it, such as https://chat.example.org or "+
			"http://localhost:3000, in lower case, or "+Local+" for all of this machine, or * for all", o)
	}
	return nil
}

// name returns the name or address of a Host header, without the port, in lower case.
func name(host string) string {
	host = strings.ToLower(host)
	if rest, ok := strings.CutPrefix(host, "["); ok {
		inner, port, _ := strings.Cut(rest, "]")
		if port != "" && port[0] != ':' {
			return host // "[::1]evil.example" is no address
		}
		return inner
	}
	if strings.Count(host, ":") == 1 {
		host, _, _ = strings.Cut(host, ":")
	}
	return strings.TrimSuffix(host, ".")
}

// CheckHost returns an error when the Host header of r is a foreign one. local is the address that the client has
// reached. A request without a Host header (HTTP/1.0) is no browser's.
func (g *Guard) CheckHost(r *http.Request, local netip.Addr) error {
	host := name(r.Host)
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(g.hosts, host) {
		return nil
	}
	if a, err := netip.ParseAddr(host); err == nil && (a.Unmap().IsLoopback() || a.Unmap() == local.Unmap()) {
		return nil
	}
	return fmt.Errorf("the Host header is %.100q, which is none of this server's names", r.Host)
}

// CheckOrigin returns an error when r may change something and a page of a foreign origin sends it.
func (g *Guard) CheckOrigin(r *http.Request) error {
	if g.all(r.Header.Get("Origin")) || g.cross.Check(r) == nil {
		return nil
	}
	return g.foreign(r)
}

// CheckStream is CheckOrigin for a GET that occupies the server while it is open: a page of another origin cannot read
// it, but could open many.
func (g *Guard) CheckStream(r *http.Request) error {
	if g.all(r.Header.Get("Origin")) {
		return nil
	}
	opens := *r
	opens.Method = http.MethodPost // a method that the check does not let pass unseen
	if g.cross.Check(&opens) == nil {
		return nil
	}
	return g.foreign(r)
}

func (g *Guard) foreign(r *http.Request) error {
	if origin := r.Header.Get("Origin"); origin != "" {
		return fmt.Errorf("the page's origin is %.100q, which may not use this server", origin)
	}
	return fmt.Errorf("a page of another origin sends this request (Sec-Fetch-Site is %.100q), which may not use "+
		"this server", r.Header.Get("Sec-Fetch-Site"))
}

// listing is the answer to a preflight request: it names all methods, not the one that was asked for.
type listing struct{ http.ResponseWriter }

func (l listing) WriteHeader(status int) {
	if head := l.Header(); head.Get("Access-Control-Allow-Methods") != "" {
		head.Set("Access-Control-Allow-Methods", methods)
	}
	l.ResponseWriter.WriteHeader(status)
}

// CORS adds the headers that let a page of an allowed origin read the answer, and answers preflight requests: done says
// that there is nothing left to answer. The error is that of a preflight request of a foreign origin, which the caller
// answers: without such headers the browser sends no request.
func (g *Guard) CORS(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	preflight := r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
	if preflight && (g.shared == nil || !g.shared.OriginAllowed(r)) {
		return false, g.foreign(r)
	}
	if g.shared != nil && (preflight || r.Header.Get("Origin") != "") {
		if preflight {
			w = listing{w}
		}
		g.shared.HandlerFunc(w, r)
	} else if g.shared != nil {
		w.Header().Add("Vary", "Origin")
	}
	return preflight, nil
}
