package entry

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/access"
	"github.com/uma-serve/uma-serve/daemon/access/apikeys"
	"github.com/uma-serve/uma-serve/daemon/certs"
	"github.com/uma-serve/uma-serve/daemon/config"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/tlspipe"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// Entry is the entry of one process. Its fields do not change after Open.
type Entry struct {
	Config    *config.Config
	Log       *slog.Logger
	Metrics   *metrics.Metrics
	Access    *access.Gate
	Listeners []*ipc.Listener // the Unix socket first; none in an engine process
	Loop      *ipc.Loop
	Web       *httpd.Server
	Begun     time.Time // when Open was called

	certificate *certs.Source // nil: plain text
	tls         *tlspipe.TLS  // likewise

	passed *Passed
	ended  chan struct{} // closed when Loop.Run has returned err
	err    error
}

// Options extend the configuration: they differ between processes of one.
type Options struct {
	Handler ipc.Handler // of the framed and the newline protocol
	Router  ipc.Router  // of a front; nil: every connection is served here
	// Elsewhere is httpd.Server's field.
	Elsewhere func(r *http.Request, body []byte) bool
	Passed    *Passed // of an engine process; nil: the process listens itself
	// Defaults has the values of fields that requests omit; nil = wire.DefaultRequest().
	Defaults *wire.Request
	// Check is called when the sockets are bound; nil: nothing is checked.
	Check func() error
}

// Passed holds the values that an engine process gets from its front instead of sockets.
type Passed struct {
	Addresses Addresses
	Keys      access.Keyring    // nil: the front has no --api-keys
	Limit     func(*ipc.Config) // adapts the poller's limits
}

// Open binds the sockets, so that a second daemon or a wrong path fails first. The error names the option.
func Open(cfg *config.Config, log *slog.Logger, o Options) (*Entry, error) {
	e := &Entry{Config: cfg, Log: log, Begun: time.Now(), passed: o.Passed, ended: make(chan struct{}),
		Metrics: metrics.New(metrics.Build{Version: buildinfo.Version, Engine: buildinfo.Engine})}
	if err := e.openAccess(); err != nil {
		return nil, err
	}
	e.Web = &httpd.Server{Config: cfg, Log: log, Metrics: e.Metrics, Access: e.Access, Elsewhere: o.Elsewhere,
		Defaults: o.Defaults}
	if err := e.listen(); err != nil {
		return nil, err
	}
	err := e.Access.CheckListeners(e.Listeners, cfg, log)
	if err == nil && o.Check != nil {
		err = o.Check()
	}
	if err == nil {
		e.Loop, err = ipc.New(e.limits(&o), e.Listeners, o.Handler)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	for _, ln := range e.Listeners {
		switch {
		case ln.Secure():
			log.Info("listening", "url", urlOf(ln), "certificate_sha256", e.certificate.Fingerprint(), "expires",
				e.certificate.Expires())
		case ln.TCP().IsValid():
			log.Info("listening", "url", urlOf(ln))
		}
	}
	e.bindMetrics()
	if e.passed == nil {
		e.warnOfDescriptors()
	}
	return e, nil
}

func (e *Entry) openAccess() (err error) {
	var keys access.Keyring
	if e.passed != nil {
		keys = e.passed.Keys
	} else if keys, err = access.OpenKeys(e.Config, e.Log); err != nil {
		return err
	}
	e.Access, err = access.New(e.Config, keys)
	return err
}

func (e *Entry) listen() error {
	mode, err := config.ParseMode("socket-mode", e.Config.SocketMode)
	if err != nil {
		return err
	}
	addrs, err := e.Config.ListenAddresses()
	if err != nil || e.passed != nil {
		return err
	}
	if err := e.openTLS(addrs); err != nil {
		return err
	}
	e.Listeners, err = ipc.Listen(ipc.ListenConfig{Path: e.Config.SocketPath(), Mode: mode, Group: e.Config.SocketGroup,
		TCP: addrs, TLS: e.tls})
	return err
}

// openTLS reads or makes the certificate of the TCP addresses.
func (e *Entry) openTLS(addrs []netip.AddrPort) (err error) {
	switch c := e.Config; c.TLSCert {
	case "":
		return nil
	case config.SelfMadeCert:
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("--tls-cert self: no folder for the certificate: %w", err)
		}
		names := certs.Names(addrs, c.AllowedHosts)
		e.certificate, err = certs.Make(filepath.Join(dir, "uma-serve", "tls"), names, e.Log, time.Now)
		if err != nil {
			return err
		}
	default:
		if e.certificate, err = certs.Open(c.TLSCert, c.TLSKey, e.Log, time.Now); err != nil {
			return err
		}
	}
	e.tls = tlspipe.New(e.certificate.Config(), 2*e.Config.MaxSessions)
	return nil
}

// limits returns the poller's configuration.
func (e *Entry) limits(o *Options) ipc.Config {
	c := e.Config
	l := ipc.Config{
		MaxFrameBytes: c.MaxFrameBytes, MaxPromptBytes: c.MaxPromptBytes, MaxSessions: c.MaxSessions,
		IdleTimeout: c.IdleTimeout, StallTimeout: c.StallTimeout, MessageTimeout: c.BodyTimeout,
		HeaderTimeout: c.HeaderTimeout, Router: o.Router, Defaults: o.Defaults, NoNewline: c.NoNewline,
	}
	if e.passed != nil {
		e.passed.Limit(&l)
	}
	if e.Access.Keys != nil {
		l.MaxUID = apikeys.FirstID - 1
	}
	return l
}

// Start begins to serve: HTTP by routes. onStop is the argument of httpd.Server.Serve. The channel is closed when the
// poller ends; if that is before Stop, Err says why.
func (e *Entry) Start(routes http.Handler, onStop func()) <-chan struct{} {
	go func() {
		e.err = e.Loop.Run()
		close(e.ended)
	}()
	e.Web.Serve(e.Loop.HTTP(), routes, onStop)
	return e.ended
}

// Err returns the error with which the poller has ended.
func (e *Entry) Err() error { return e.err }

// Stop ends listening, sends the output that waits for clients, for at most flush, and closes every connection.
func (e *Entry) Stop(flush time.Duration) {
	e.Loop.Stop(flush)
	<-e.ended
	e.Web.Stop(flush)
	if e.tls != nil {
		e.tls.Wait(flush)
	}
	e.Close()
}

// Close gives up an Entry that was not started.
func (e *Entry) Close() { ipc.CloseAll(e.Listeners) }

// warnOfDescriptors warns if the limit of file descriptors is too low for --max-sessions.
func (e *Entry) warnOfDescriptors() {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return
	}
	each := uint64(1)
	if e.tls != nil {
		each = 3 // the client's, and a pair
	}
	if need := each*uint64(e.Config.MaxSessions) + ownDescriptors; uint64(l.Cur) < need {
		e.Log.Warn("fewer file descriptors than --max-sessions needs: connections beyond them are refused (ulimit "+
			"-n, LimitNOFILE=)",
			"descriptors", uint64(l.Cur), "needed", need, "max_sessions", e.Config.MaxSessions)
	}
}

// ownDescriptors is the number of descriptors besides connections: sockets, pollers, the model, cache files, a reserve.
const ownDescriptors = 64
