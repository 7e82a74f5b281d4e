package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/access/apikeys"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/webguard"
	"github.com/uma-serve/uma-serve/ipc"
)

// Reasons of http_refused_total: why a request over TCP is refused.
const (
	refusedHost   = "host"   // the Host header names another server
	refusedOrigin = "origin" // a web page of a foreign origin
	refusedUser   = "uid"    // --listen-mode excludes the user, or the kernel does not know it; no --api-keys
	refusedKey    = "key"    // the API key is missing or unknown
)

// access authenticates and authorises HTTP requests over TCP.
type access struct {
	guard *webguard.Guard
	keys  keyring // nil without --api-keys
	mode  os.FileMode
	uid   uint32 // the daemon's user
	gid   int    // the group of mode's group bits

	mu     sync.Mutex
	groups map[uint32]membership
}

// membership caches whether a user is in the group.
type membership struct {
	member bool
	until  time.Time
}

// Limits of the cache of memberships; a look-up in the user database may use the network.
const (
	groupsFor = 10 * time.Second
	groupsOf  = 1024 // users
)

// keyring is the keys of --api-keys: a file, or in an engine process what its front has read of it.
type keyring interface {
	Keys() *apikeys.Keys   // the valid ones, after another look at the file
	Loaded() *apikeys.Keys // the same without that look
}

func newAccess(cfg *config.Config, log *slog.Logger, e *engine) (*access, error) {
	a := &access{uid: uint32(os.Geteuid()), gid: os.Getegid(), groups: map[uint32]membership{}}
	var err error
	if a.mode, err = config.ParseMode("listen-mode", cfg.ListenMode); err != nil {
		return nil, err
	}
	if cfg.ListenGroup != "" {
		if a.gid, err = ipc.LookupGroup("listen-group", cfg.ListenGroup); err != nil {
			return nil, err
		}
	}
	if a.guard, err = webguard.New(cfg.AllowedHosts, cfg.CORSOrigins); err != nil {
		return nil, err
	}
	switch {
	case e != nil && e.start.Keys != nil:
		a.keys = &e.keys
	case e != nil:
	case cfg.APIKeys != "":
		keys, err := apikeys.Open(cfg.APIKeys, func(keys *apikeys.Keys, err error) {
			if err != nil {
				log.Error("--api-keys: the file cannot be used; the keys read before stay valid", "error", err, "keys",
					keys.Len())
				return
			}
			log.Info("API keys reloaded", "keys", keys.Len(), "owners", keys.Owners())
			warnOfShortKeys(log, keys)
		})
		if err != nil {
			return nil, fmt.Errorf("--api-keys: %w", err)
		}
		a.keys = keys
		warnOfShortKeys(log, a.keys.Keys())
	}
	return a, nil
}

func warnOfShortKeys(log *slog.Logger, keys *apikeys.Keys) {
	if n := keys.Short(); n > 0 {
		log.Warn(fmt.Sprintf("--api-keys: %d of %d keys have fewer than %d characters and may be guessed", n,
			keys.Len(), apikeys.ShortKeyBytes))
	}
}

// denial is the answer to a refused request.
type denial struct {
	reason  string
	status  int
	message string
}

// guarded passes a request over TCP to next if its Host and Origin headers name this server and its client is known and
// allowed. Requests over the Unix socket pass: the permissions of the socket file decide there, and browsers cannot
// open it. guarded reads no body.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := ipc.PeerOf(r.Context())
		if !ok || !peer.TCP() {
			next.ServeHTTP(w, r)
			return
		}
		if err := s.access.guard.CheckHost(r, peer.Local.Addr()); err != nil {
			s.deny(w, r, &denial{refusedHost, http.StatusForbidden, err.Error() + "; --allowed-host adds a name"})
			return
		}
		done, err := s.access.guard.CORS(w, r)
		if err != nil {
			s.deny(w, r, &denial{refusedOrigin, http.StatusForbidden, err.Error() + "; --cors-origin adds an origin"})
			return
		}
		if done {
			return
		}
		client, refused := s.access.client(r, peer)
		switch {
		case refused != nil && s.access.keys != nil && asksHealth(r):
			r = r.WithContext(context.WithValue(r.Context(), anonymous{}, true))
		case refused != nil:
			s.deny(w, r, refused)
			return
		}
		check := s.access.guard.CheckOrigin
		if r.URL.Path == LivePath {
			check = s.access.guard.CheckStream
		}
		if err := check(r); err != nil {
			s.deny(w, r, &denial{refusedOrigin, http.StatusForbidden, err.Error() + "; --cors-origin adds an origin"})
			return
		}
		if refused == nil && (client.UID != peer.UID || peer.Unknown != nil) {
			r = r.WithContext(ipc.Identified(r.Context(), client))
		}
		next.ServeHTTP(w, r)
	})
}

// anonymous is the context key of requests that pass without a known client.
type anonymous struct{}

// Anonymous reports whether a request of this context has no known client: it may learn the server's status alone.
func Anonymous(ctx context.Context) bool { return ctx.Value(anonymous{}) != nil }

// asksHealth reports whether r asks for the server's health. With --api-keys that needs no key: load balancers and
// supervisors have none, as with llama-server.
func asksHealth(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		(r.URL.Path == "/health" || r.URL.Path == "/v1/health")
}

// client returns the peer whose identity a request has: the owner of its API key, else the user known to the kernel.
func (a *access) client(r *http.Request, peer ipc.Peer) (ipc.Peer, *denial) {
	hint := ""
	if a.keys != nil {
		given := givenKeys(r)
		keys := a.keys.Keys()
		for _, key := range given {
			if owner, ok := keys.Find(key); ok {
				peer.UID, peer.Unknown = owner.ID, nil
				return peer, nil
			}
		}
		if len(given) > 0 {
			return peer, &denial{refusedKey, http.StatusUnauthorized, "this API key is unknown"}
		}
		hint = "; send an API key (Authorization: Bearer KEY, or x-api-key: KEY)"
	}
	// A reverse proxy's user is not the user of the request that it forwards.
	if name := forwarded(r); name != "" {
		if a.keys == nil {
			return peer, &denial{refusedKey, http.StatusForbidden, "the header " + name +
				" says that a proxy forwards this request, so its user is unknown: the daemon needs --api-keys"}
		}
		return peer, &denial{refusedKey, http.StatusUnauthorized, "the header " + name +
			" says that a proxy forwards this request, so its user is unknown" + hint}
	}
	switch {
	case peer.Unknown != nil && a.keys != nil:
		return peer, &denial{refusedKey, http.StatusUnauthorized, "the client's user is unknown: " +
			peer.Unknown.Error() + hint}
	case peer.Unknown != nil:
		return peer, &denial{refusedUser, http.StatusForbidden, "the client's user is unknown: " +
			peer.Unknown.Error() +
			"; use the Unix socket, or start the daemon with --api-keys"}
	case peer.Passed && peer.Admitted, !peer.Passed && a.allows(peer.UID):
		return peer, nil
	}
	d := &denial{refusedUser, http.StatusForbidden, fmt.Sprintf(
		"user %d may not use this daemon: --listen-mode is %04o; --listen-mode and --listen-group work like the "+
			"permissions of a socket file%s", peer.UID, a.mode, hint)}
	if a.keys != nil { // a key would let the client in
		d.reason, d.status = refusedKey, http.StatusUnauthorized
	}
	return peer, d
}

// givenKeys returns the API keys in a request's headers: OpenAI's Authorization, then Anthropic's X-Api-Key.
func givenKeys(r *http.Request) (keys []string) {
	if scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		keys = append(keys, strings.TrimSpace(key))
	}
	if key := strings.TrimSpace(r.Header.Get("X-Api-Key")); key != "" {
		keys = append(keys, key)
	}
	return slices.DeleteFunc(keys, func(k string) bool { return k == "" })
}

// forwarded returns the name of the header in which a reverse proxy states its client, or "".
func forwarded(r *http.Request) string {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"} {
		if r.Header.Get(name) != "" {
			return name
		}
	}
	return ""
}

// allows reports whether --listen-mode admits a user. As with a socket file, the write bit grants the right to connect
// and the first class of a user counts (owner, group, others). Root is admitted unless no class has the bit.
func (a *access) allows(uid uint32) bool {
	group, others := a.mode&0o020 != 0, a.mode&0o002 != 0
	switch {
	case a.mode&0o222 == 0:
		return false
	case uid == 0:
		return true
	case uid == a.uid:
		return a.mode&0o200 != 0
	case group == others:
		return group
	case a.member(uid):
		return group
	}
	return others
}

// member reports whether the user database lists a user in the group; over TCP the kernel does not report groups.
func (a *access) member(uid uint32) bool {
	now := time.Now()
	a.mu.Lock()
	known, ok := a.groups[uid]
	a.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.member
	}
	in := inGroup(uid, a.gid)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.groups) >= groupsOf {
		clear(a.groups)
	}
	a.groups[uid] = membership{in, now.Add(groupsFor)}
	return in
}

func inGroup(uid uint32, gid int) bool {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return false
	}
	groups, err := u.GroupIds()
	return err == nil && slices.Contains(groups, strconv.Itoa(gid))
}

// deny answers a refused request in the form of the API that its path belongs to.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, d *denial) {
	s.metrics.HTTPRefused.Inc(d.reason)
	s.log.Debug("HTTP request refused", "reason", d.reason, "path", r.URL.Path, "remote", r.RemoteAddr, "message",
		d.message)
	rc := http.NewResponseController(w)
	if s.cfg.StallTimeout > 0 {
		rc.SetWriteDeadline(time.Now().Add(s.cfg.StallTimeout))
	}
	if r.ContentLength != 0 { // do not read the body
		w.Header().Set("Connection", "close")
		rc.SetReadDeadline(time.Now().Add(bodyLinger))
	}
	kind := "permission_error"
	if d.status == http.StatusUnauthorized {
		kind = "authentication_error"
		w.Header().Set("WWW-Authenticate", `Bearer realm="uma-serve"`)
	}
	if strings.HasPrefix(r.URL.Path, "/api/") { // ollama's
		answerJSON(w, d.status, mustJSON(struct {
			Error string `json:"error"`
		}{d.message}))
		return
	}
	type body struct {
		Code    int    `json:"code"`
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	answerJSON(w, d.status, mustJSON(struct {
		Type  string `json:"type"` // Anthropic's
		Error body   `json:"error"`
	}{"error", body{d.status, kind, d.message}}))
}

// checkListeners refuses TCP listeners whose clients cannot be identified. Listeners passed by systemd are not known
// before they are open.
func (s *Server) checkListeners() error {
	var errs []error
	for _, ln := range s.listeners {
		if !ln.TCP().IsValid() {
			continue
		}
		if err := s.cfg.MayListen(ln.TCP()); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := ln.Users(); err != nil {
			if s.access.keys == nil {
				errs = append(errs, fmt.Errorf("--listen %s: %w; without --api-keys FILE it would refuse every client",
					ln.Address(), err))
				continue
			}
			s.log.Warn("clients of this address need an API key", "address", ln.Address(), "reason", err)
		}
	}
	return errors.Join(errs...)
}

// ownerName returns the name of the API-key owner with this id, "" if the id is a user's. Safe from any goroutine; it
// reads no file.
func (a *access) ownerName(id uint32) string {
	if a.keys == nil || id < apikeys.FirstID {
		return ""
	}
	return a.keys.Loaded().Name(id)
}
