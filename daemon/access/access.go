// Package access decides who may ask over TCP, and whose request it is: by the keys of --api-keys, the user that the
// kernel reports, and --listen-mode. Clients of the Unix socket pass its file's permissions instead.
package access

import (
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
	RefusedHost   = "host"   // the Host header names another server
	RefusedOrigin = "origin" // a web page of a foreign origin
	RefusedUser   = "uid"    // --listen-mode excludes the user, or the kernel does not know it; no --api-keys
	RefusedKey    = "key"    // the API key is missing or unknown
)

// Gate authenticates and authorises HTTP requests over TCP. Safe from any goroutine.
type Gate struct {
	Guard *webguard.Guard // of the Host and Origin headers
	Keys  Keyring         // nil without --api-keys
	Mode  os.FileMode     // --listen-mode

	uid uint32 // the daemon's user
	gid int    // the group of mode's group bits

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

// Keyring is the keys of --api-keys: a file, or in an engine process what its front has read of it.
type Keyring interface {
	Keys() *apikeys.Keys   // the valid ones, after another look at the file
	Loaded() *apikeys.Keys // the same without that look
}

// New returns the Gate of a configuration. keys are the keys of --api-keys, nil without the option. The error names the
// option.
func New(cfg *config.Config, keys Keyring) (*Gate, error) {
	a := &Gate{Keys: keys, uid: uint32(os.Geteuid()), gid: os.Getegid(), groups: map[uint32]membership{}}
	var err error
	if a.Mode, err = config.ParseMode("listen-mode", cfg.ListenMode); err != nil {
		return nil, err
	}
	if cfg.ListenGroup != "" {
		if a.gid, err = ipc.LookupGroup("listen-group", cfg.ListenGroup); err != nil {
			return nil, err
		}
	}
	origins := cfg.CORSOrigins
	keyed := keys != nil && a.Mode&0o777 == 0 // no client is let in without a key, and a page has no more than its own
	if len(origins) == 0 && keyed {
		origins = []string{"*"}
	}
	if a.Guard, err = webguard.New(cfg.AllowedHosts, origins, keyed); err != nil {
		return nil, err
	}
	return a, nil
}

// OpenKeys opens the file of --api-keys, which is read again when it has changed; nil without the option.
func OpenKeys(cfg *config.Config, log *slog.Logger) (Keyring, error) {
	if cfg.APIKeys == "" {
		return nil, nil
	}
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
	warnOfShortKeys(log, keys.Keys())
	return keys, nil
}

func warnOfShortKeys(log *slog.Logger, keys *apikeys.Keys) {
	if n := keys.Short(); n > 0 {
		log.Warn(fmt.Sprintf("--api-keys: %d of %d keys have fewer than %d characters and may be guessed", n,
			keys.Len(), apikeys.ShortKeyBytes))
	}
}

// Denial is the answer to a refused request.
type Denial struct {
	Reason  string // a value of the label of http_refused_total
	Status  int
	Message string
}

// Client returns the peer whose identity a request has: the owner of its API key, else the user known to the kernel.
func (a *Gate) Client(r *http.Request, peer ipc.Peer) (ipc.Peer, *Denial) {
	hint := ""
	if a.Keys != nil {
		given := givenKeys(r)
		keys := a.Keys.Keys()
		for _, key := range given {
			if owner, ok := keys.Find(key); ok {
				peer.UID, peer.Unknown = owner.ID, nil
				return peer, nil
			}
		}
		if len(given) > 0 {
			return peer, &Denial{RefusedKey, http.StatusUnauthorized, "this API key is unknown"}
		}
		hint = "; send an API key (Authorization: Bearer KEY, or x-api-key: KEY)"
	}
	// A reverse proxy's user is not the user of the request that it forwards.
	if name := forwarded(r); name != "" {
		if a.Keys == nil {
			return peer, &Denial{RefusedKey, http.StatusForbidden, "the header " + name +
				" says that a proxy forwards this request, so its user is unknown: the daemon needs --api-keys"}
		}
		return peer, &Denial{RefusedKey, http.StatusUnauthorized, "the header " + name +
			" says that a proxy forwards this request, so its user is unknown" + hint}
	}
	switch {
	case peer.Unknown != nil && a.Keys != nil:
		return peer, &Denial{RefusedKey, http.StatusUnauthorized, "the client's user is unknown: " +
			peer.Unknown.Error() + hint}
	case peer.Unknown != nil:
		return peer, &Denial{RefusedUser, http.StatusForbidden, "the client's user is unknown: " +
			peer.Unknown.Error() +
			"; use the Unix socket, or start the daemon with --api-keys"}
	case peer.Passed && peer.Admitted, !peer.Passed && a.Allows(peer.UID):
		return peer, nil
	}
	d := &Denial{RefusedUser, http.StatusForbidden, fmt.Sprintf(
		"user %d may not use this daemon: --listen-mode is %04o; --listen-mode and --listen-group work like the "+
			"permissions of a socket file%s", peer.UID, a.Mode, hint)}
	if a.Keys != nil { // a key would let the client in
		d.Reason, d.Status = RefusedKey, http.StatusUnauthorized
	}
	return peer, d
}

// May reports whether the client of an HTTP request may ask at all, as the HTTP server decides.
func (a *Gate) May(r *http.Request, peer ipc.Peer) bool {
	if !peer.TCP() {
		return true
	}
	if a.Guard.CheckHost(r, peer.Local.Addr()) != nil || a.Guard.CheckOrigin(r) != nil {
		return false
	}
	_, refused := a.Client(r, peer)
	return refused == nil
}

// OwnerOf returns the uid of the user, or the number of the API key's owner, that sent an HTTP request.
func (a *Gate) OwnerOf(r *http.Request, peer ipc.Peer) uint32 {
	if of, refused := a.Client(r, peer); refused == nil {
		return of.UID
	}
	return peer.UID
}

// Admits reports whether --listen-mode lets the user of a client over TCP ask without an API key. It may look into the
// user database.
func (a *Gate) Admits(peer ipc.Peer) bool {
	return peer.TCP() && peer.Unknown == nil && a.Allows(peer.UID)
}

// givenKeys returns the API keys in a request's headers: OpenAI's Authorization, Anthropic's X-Api-Key, Google's
// X-Goog-Api-Key. A key in the query, which Google's API takes too, would be in logs.
func givenKeys(r *http.Request) (keys []string) {
	if scheme, key, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		keys = append(keys, strings.TrimSpace(key))
	}
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if key := strings.TrimSpace(r.Header.Get(name)); key != "" {
			keys = append(keys, key)
		}
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

// Allows reports whether --listen-mode admits a user. As with a socket file, the write bit grants the right to connect
// and the first class of a user counts (owner, group, others). Root is admitted unless no class has the bit.
func (a *Gate) Allows(uid uint32) bool {
	group, others := a.Mode&0o020 != 0, a.Mode&0o002 != 0
	switch {
	case a.Mode&0o222 == 0:
		return false
	case uid == 0:
		return true
	case uid == a.uid:
		return a.Mode&0o200 != 0
	case group == others:
		return group
	case a.member(uid):
		return group
	}
	return others
}

// member reports whether the user database lists a user in the group; over TCP the kernel does not report groups.
func (a *Gate) member(uid uint32) bool {
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

// CheckListeners refuses TCP listeners whose clients cannot be identified. Listeners passed by systemd are not known
// before they are open.
func (a *Gate) CheckListeners(lns []*ipc.Listener, cfg *config.Config, log *slog.Logger) error {
	var errs []error
	for _, ln := range lns {
		if !ln.TCP().IsValid() {
			continue
		}
		if err := cfg.MayListen(ln.TCP()); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := ln.Users(); err != nil {
			if a.Keys == nil {
				errs = append(errs, fmt.Errorf("--listen %s: %w; without --api-keys FILE it would refuse every client",
					ln.Address(), err))
				continue
			}
			log.Warn("clients of this address need an API key", "address", ln.Address(), "reason", err)
		}
	}
	return errors.Join(errs...)
}

// OwnerName returns the name of the API-key owner with this id, "" if the id is a user's. Safe from any goroutine; it
// reads no file.
func (a *Gate) OwnerName(id uint32) string {
	if a.Keys == nil || id < apikeys.FirstID {
		return ""
	}
	return a.Keys.Loaded().Name(id)
}
