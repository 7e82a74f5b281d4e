package httpd

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/daemon/access"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Headers by which a router passes on what it knows of a request. The last two are merged with its body.
const (
	HeaderUser     = "X-Uma-User"     // whose request it is; of a router alone (--router-user)
	HeaderPriority = "X-Uma-Priority" // interactive or background
	HeaderDeadline = "X-Uma-Deadline" // ms until the first token should be there: slo.target_ttft_ms
)

// maxRoutedUser is the longest name of a user in HeaderUser, in bytes.
const maxRoutedUser = 128

// routedKey is the context key of routed.
type routedKey struct{}

// routed has the values of the headers.
type routed struct {
	background bool
	deadline   time.Duration // 0: none
}

// readRouted reads HeaderPriority and HeaderDeadline. The error names the header.
func readRouted(h http.Header) (r routed, err error) {
	switch p := h.Get(HeaderPriority); p {
	case "", "interactive":
	case "background":
		r.background = true
	default:
		return r, fmt.Errorf("header %s is %.40q; it must be interactive or background", HeaderPriority, p)
	}
	if text := h.Get(HeaderDeadline); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 1 || ms > maxDeadlineMs {
			return r, fmt.Errorf("header %s is %.40q; it must be a number of milliseconds, 1…%d", HeaderDeadline,
				text, maxDeadlineMs)
		}
		r.deadline = time.Duration(ms) * time.Millisecond
	}
	return r, nil
}

const maxDeadlineMs = 3_600_000

// apply merges the headers into a request whose body has been read: it may run in the background, whatever it says.
func (r routed) apply(q *wire.Request) {
	if r.background {
		q.Priority = wire.PriorityBackground
	}
}

// defaults returns the values of fields that an HTTP request omits: the server's, and above them the deadline of a
// router. nil: those of package wire.
func (s *Server) defaults(ctx context.Context) *wire.Request {
	said := routedOf(ctx)
	if said.deadline == 0 {
		return s.Defaults
	}
	def := wire.DefaultRequest()
	if s.Defaults != nil {
		def = *s.Defaults
	}
	def.TargetTTFT = said.deadline
	return &def
}

// routedUser returns the owner of the requests of a router's user: a number that no user id of this machine is, the
// same after a restart.
func routedUser(router uint32, user string) (uint32, error) {
	if len(user) > maxRoutedUser {
		return 0, fmt.Errorf("header %s has %d bytes; it must be at most %d", HeaderUser, len(user), maxRoutedUser)
	}
	for _, c := range []byte(user) {
		if c <= ' ' || c > '~' {
			return 0, fmt.Errorf("header %s has the byte %#x; it must have printable ASCII characters without spaces",
				HeaderUser, c)
		}
	}
	sum := blake3.Sum256(append(binary.LittleEndian.AppendUint32([]byte("router_user"), router), user...))
	return min(binary.LittleEndian.Uint32(sum[:])|1<<31, 1<<32-2), nil
}

// isRouter reports whether an owner is one of --router-user: a user id, or the OWNER of an API key.
func (s *Server) isRouter(uid uint32) bool {
	return slices.Contains(s.Config.RouterUsers, strconv.FormatUint(uint64(uid), 10)) ||
		slices.Contains(s.Config.RouterUsers, s.Access.OwnerName(uid))
}

// withRouted applies a request's headers of a router to its context. A denial is for a client that is no router and
// names a user.
func (s *Server) withRouted(r *http.Request) (*http.Request, *access.Denial) {
	h := r.Header
	said, err := readRouted(h)
	bad := func(status int, err error) *access.Denial {
		return &access.Denial{Reason: access.RefusedUser, Status: status, Message: err.Error()}
	}
	if err != nil {
		return r, bad(http.StatusBadRequest, err)
	}
	ctx := r.Context()
	if said != (routed{}) {
		ctx = context.WithValue(ctx, routedKey{}, said)
	}
	if user := h.Get(HeaderUser); user != "" {
		peer, ok := ipc.PeerOf(ctx)
		if !ok || Anonymous(ctx) || !s.isRouter(peer.UID) {
			return r, bad(http.StatusForbidden, fmt.Errorf("header %s names another user, and this client (user %d) "+
				"is no router: --router-user names those that are", HeaderUser, peer.UID))
		}
		uid, err := routedUser(peer.UID, user)
		if err != nil {
			return r, bad(http.StatusBadRequest, err)
		}
		peer.UID = uid
		ctx = ipc.Identified(ctx, peer)
	}
	return r.WithContext(ctx), nil
}

// serveRouted passes a request of a known client on, with what the headers of a router say.
func (s *Server) serveRouted(w http.ResponseWriter, r *http.Request, next http.Handler) {
	r, denied := s.withRouted(r)
	if denied != nil {
		s.deny(w, r, denied)
		return
	}
	next.ServeHTTP(w, r)
}

// routedOf returns what the headers of an HTTP request say.
func routedOf(ctx context.Context) routed {
	r, _ := ctx.Value(routedKey{}).(routed)
	return r
}
