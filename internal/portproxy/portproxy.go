// Package portproxy gives programs that cannot open a Unix socket a loopback TCP port of a daemon, for as long as the
// proxy runs. It serves the processes of one user alone: on Linux the kernel says whose process connects; elsewhere a
// random key, which the proxy's environment variables hold, has to come with each request.
package portproxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/webguard"
	"github.com/uma-serve/uma-serve/ipc/sockdiag"
)

// Limits of a client's connection.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	headerBytes   = 64 << 10
)

// Proxy forwards HTTP from a port to a daemon.
type Proxy struct {
	ln     net.Listener
	server *http.Server
	finder *sockdiag.Finder // nil: key holds
	guard  *webguard.Guard
	key    string // "" where the kernel tells users
	uid    uint32
}

// Listen opens the port addr, which must be a loopback address. forward makes requests to the daemon.
func Listen(addr netip.AddrPort, forward http.RoundTripper) (*Proxy, error) {
	return ListenFor(addr, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "uma-serve"
			r.Out.Host = r.In.Host
			if r.Out.Body != nil {
				r.Out.Body = &body{ReadCloser: r.Out.Body}
			}
		},
		Transport: forward, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				refuse(w, r, http.StatusBadGateway, "unavailable_error", "the daemon does not answer: "+err.Error())
			}
		},
		ErrorLog: log.New(io.Discard, "", 0),
	})
}

// ListenFor opens the port addr, which must be a loopback address, for another handler than Listen's.
func ListenFor(addr netip.AddrPort, target http.Handler) (*Proxy, error) {
	if !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("%s is no loopback address: the proxy serves this machine's user alone; other "+
			"machines reach the daemon's --listen", addr)
	}
	p := &Proxy{uid: uint32(os.Geteuid())}
	var err error
	if p.guard, err = webguard.New(nil, nil, false); err != nil {
		return nil, err
	}
	if p.finder, err = sockdiag.New(); err != nil {
		p.finder, p.key = nil, rand.Text()
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	if p.ln, err = lc.Listen(context.Background(), "tcp", addr.String()); err != nil {
		p.closeFinder()
		return nil, err
	}
	p.server = &http.Server{
		Handler: p.guarded(target), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: headerBytes,
		ErrorLog:       log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, p.check(c))
		},
	}
	return p, nil
}

func (p *Proxy) closeFinder() {
	if p.finder != nil {
		p.finder.Close()
	}
}

// PageURL returns the address of the page. On systems whose kernel does not tell a client's user, the address contains
// the key, which the server moves into a cookie.
func (p *Proxy) PageURL() string {
	if p.key == "" {
		return p.URL() + "/"
	}
	return p.URL() + "/?key=" + p.key
}

// URL returns the address of the proxy, http://ADDRESS:PORT.
func (p *Proxy) URL() string { return "http://" + p.ln.Addr().String() }

// Env returns the environment variables by which client libraries and programs find the proxy.
func (p *Proxy) Env() []string {
	key := p.ClientKey()
	return []string{
		"OPENAI_BASE_URL=" + p.URL() + "/v1", "OPENAI_API_BASE=" + p.URL() + "/v1", "OPENAI_API_KEY=" + key,
		"ANTHROPIC_BASE_URL=" + p.URL(), "ANTHROPIC_API_KEY=" + key,
		"GOOGLE_GEMINI_BASE_URL=" + p.URL(), "GEMINI_API_KEY=" + key,
		"OLLAMA_HOST=" + p.URL(), "UMA_URL=" + p.URL(),
	}
}

// Key returns the key that requests must carry as "Authorization: Bearer KEY"; "" where the kernel tells users.
func (p *Proxy) Key() string { return p.key }

// ClientKey returns the key for clients: a word where none is needed, because libraries insist on one.
func (p *Proxy) ClientKey() string {
	if p.key == "" {
		return "uma-serve"
	}
	return p.key
}

// NeedsKey reports whether requests must carry the key of Env, because the kernel does not tell users.
func (p *Proxy) NeedsKey() bool { return p.key != "" }

// Serve forwards requests until Close.
func (p *Proxy) Serve() error {
	if err := p.server.Serve(p.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends the proxy and the requests that run.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.ln.Close() // also when Serve has not begun
	p.closeFinder()
	return err
}

// body ends once. The transport reads again after the end, by when an answer may have begun and net/http's server has
// closed the body; the error of that read would end the answer (golang/go#40747).
type body struct {
	io.ReadCloser
	ended bool
}

func (b *body) Read(p []byte) (n int, err error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err = b.ReadCloser.Read(p)
	b.ended = err == io.EOF
	return n, err
}

type connKey struct{}

// check returns why a new connection may not be used, nil if it may.
func (p *Proxy) check(c net.Conn) error {
	if p.finder == nil {
		return nil
	}
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return err
	}
	remote, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var uid uint32
	var unknown error
	if err := raw.Control(func(fd uintptr) { uid, unknown = p.finder.UID(int(fd), local, remote) }); err != nil {
		return err
	}
	if unknown != nil {
		return fmt.Errorf("it is not known which user asks: %w", unknown)
	}
	if uid != p.uid {
		return fmt.Errorf("user %d may not use this port; it is user %d's", uid, p.uid)
	}
	return nil
}

// guarded lets the user's own requests reach next, and no web page of a foreign origin.
func (p *Proxy) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err, _ := r.Context().Value(connKey{}).(error); err != nil {
			refuse(w, r, http.StatusForbidden, "permission_error", err.Error())
			return
		}
		local := netip.Addr{}
		if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
			local = a.AddrPort().Addr()
		}
		if err := p.guard.CheckHost(r, local); err != nil {
			refuse(w, r, http.StatusForbidden, "permission_error", err.Error())
			return
		}
		if err := p.guard.CheckOrigin(r); err != nil {
			refuse(w, r, http.StatusForbidden, "permission_error", err.Error())
			return
		}
		if p.key != "" && r.URL.Path == "/" && p.isKey(r.URL.Query().Get("key")) {
			http.SetCookie(w, &http.Cookie{Name: p.cookie(), Value: p.key, Path: "/", HttpOnly: true,
				SameSite: http.SameSiteLaxMode})
			w.Header().Set("Referrer-Policy", "no-referrer")
			w.Header().Set("Cache-Control", "no-store")
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		if p.key != "" && !p.hasKey(r) {
			refuse(w, r, http.StatusUnauthorized, "authentication_error",
				"this system does not tell which user asks; send the key that the proxy has put into OPENAI_API_KEY")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// cookie returns the name of the browser's copy of the key. Cookies do not know ports, so the name does.
func (p *Proxy) cookie() string {
	_, port, _ := net.SplitHostPort(p.ln.Addr().String())
	return "uma_key_" + port
}

func (p *Proxy) isKey(given string) bool {
	want, got := sha256.Sum256([]byte(p.key)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

func (p *Proxy) hasKey(r *http.Request) bool {
	if c, err := r.Cookie(p.cookie()); err == nil && p.isKey(c.Value) {
		return true
	}
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		bearer = ""
	}
	for _, key := range []string{bearer, r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key")} {
		if p.isKey(key) {
			return true
		}
	}
	return false
}

// refuse answers a request in the form of OpenAI's and Anthropic's errors, or of ollama's. Its body stays unread.
func refuse(w http.ResponseWriter, r *http.Request, status int, kind, message string) {
	type inner struct {
		Code    int    `json:"code"`
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	var body any = struct {
		Type  string `json:"type"`
		Error inner  `json:"error"`
	}{"error", inner{status, kind, message}}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		body = map[string]string{"error": message}
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic("portproxy: error body: " + err.Error()) // strings and a number
	}
	w.Header().Set("Content-Type", "application/json")
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}
