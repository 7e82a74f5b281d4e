package httpd

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/access"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/daemon/page"
	"github.com/uma-serve/uma-serve/ipc"
)

// guarded passes a request over TCP to next if its Host and Origin headers name this server and its client is known and
// allowed. Requests over the Unix socket pass: the permissions of the socket file decide there, and browsers cannot
// open it. guarded reads no body.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := ipc.PeerOf(r.Context())
		if !ok || !peer.TCP() {
			s.serveRouted(w, r, next)
			return
		}
		if err := s.Access.Guard.CheckHost(r, peer.Local.Addr()); err != nil {
			s.deny(w, r, &access.Denial{Reason: access.RefusedHost, Status: http.StatusForbidden,
				Message: err.Error() + "; --allowed-host adds a name"})
			return
		}
		done, err := s.Access.Guard.CORS(w, r)
		if err != nil { // the status of every preflight request is 200, as llama-server's
			s.denyPreflight(w, r, err)
			return
		}
		if done {
			return
		}
		client, refused := s.Access.Client(r, peer)
		switch {
		case refused != nil && s.Access.Keys != nil && isOpen(r):
			r = r.WithContext(context.WithValue(r.Context(), anonymous{}, true))
		case refused != nil:
			s.deny(w, r, refused)
			return
		}
		check := s.Access.Guard.CheckOrigin
		if r.URL.Path == LivePath {
			check = s.Access.Guard.CheckStream
		}
		if err := check(r); err != nil {
			s.deny(w, r, &access.Denial{Reason: access.RefusedOrigin, Status: http.StatusForbidden,
				Message: err.Error() + "; --cors-origin adds an origin"})
			return
		}
		if refused == nil && (client.UID != peer.UID || peer.Unknown != nil) {
			r = r.WithContext(ipc.Identified(r.Context(), client))
		}
		s.serveRouted(w, r, next)
	})
}

// anonymous is the context key of requests that pass without a known client.
type anonymous struct{}

// Anonymous reports whether a request of this context has no known client: it may learn the server's status alone.
func Anonymous(ctx context.Context) bool { return ctx.Value(anonymous{}) != nil }

// isOpen reports whether r needs no key with --api-keys: it asks for the server's health, because load balancers and
// supervisors have none, or for the page, which asks its user for the key. The page's files are those of every server.
func isOpen(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.URL.Path == "/health" || r.URL.Path == "/v1/health" || page.Has(r.URL.Path))
}

// denied counts and logs a refused request.
func (s *Server) denied(r *http.Request, d *access.Denial) {
	s.Metrics.HTTPRefused.Inc(d.Reason)
	s.Log.Debug("HTTP request refused", "reason", d.Reason, "path", r.URL.Path, "remote", r.RemoteAddr, "message",
		d.Message)
}

// denyPreflight answers a preflight request of a foreign origin: without a header that allows it, the browser does not
// send the page's request.
func (s *Server) denyPreflight(w http.ResponseWriter, r *http.Request, err error) {
	d := &access.Denial{Reason: access.RefusedOrigin, Message: err.Error() + "; --cors-origin adds an origin"}
	s.denied(r, d)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.ContentLength != 0 { // do not read the body
		w.Header().Set("Connection", "close")
	}
	io.WriteString(w, d.Message+"\n")
}

// deny answers a refused request in the form of the API that its path belongs to.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, d *access.Denial) {
	s.denied(r, d)
	rc := http.NewResponseController(w)
	if s.Config.StallTimeout > 0 {
		rc.SetWriteDeadline(time.Now().Add(s.Config.StallTimeout))
	}
	if r.ContentLength != 0 { // do not read the body
		w.Header().Set("Connection", "close")
		rc.SetReadDeadline(time.Now().Add(bodyLinger))
	}
	if hopeless(d.Status) {
		w.Header().Set(retryHeader, "false")
	}
	kind := "permission_error"
	switch d.Status {
	case http.StatusBadRequest:
		kind = "invalid_request_error"
	case http.StatusUnauthorized:
		kind = "authentication_error"
		w.Header().Set("WWW-Authenticate", `Bearer realm="uma-serve"`)
	}
	if strings.HasPrefix(r.URL.Path, "/api/") { // ollama's
		api.AnswerJSON(w, d.Status, struct {
			Error string `json:"error"`
		}{d.Message})
		return
	}
	api.AnswerJSON(w, d.Status, struct {
		Type string `json:"type"` // Anthropic's
		openai.Refusal
	}{"error", openai.Refusal{Error: openai.RefusalDetails{Code: d.Status, Type: kind, Message: d.Message}}})
}
