package httpd

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/access"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// Server serves the connections on which the poller found HTTP. Its fields do not change once it serves.
type Server struct {
	Config  *config.Config
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Access  *access.Gate
	// Defaults has the values of fields that requests omit; nil = wire.DefaultRequest().
	Defaults *wire.Request
	// Uploads: the bodies of files that clients send are not read before their handler, which reads them.
	Uploads bool
	// Elsewhere reports whether a request, with its whole body, is for another process: it is handed to that with its
	// connection. nil: none is.
	Elsewhere func(r *http.Request, body []byte) bool

	bodies bodyBudget
	http   *http.Server
	done   chan struct{} // closed when Serve has ended
}

// Serve answers the connections of ln, the Loop's HTTP listener, by routes until Stop. onStop runs when Stop begins: it
// ends the answers that would not end by themselves.
func (s *Server) Serve(ln net.Listener, routes http.Handler, onStop func()) {
	idle := keepAlive
	if s.Config.IdleTimeout > 0 {
		idle = s.Config.IdleTimeout
	}
	s.http = &http.Server{
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
		Handler:  s.guarded(s.counted(s.bounded(routes))), ConnContext: ipc.ConnContext, ConnState: ipc.ConnState,
		ReadHeaderTimeout: s.Config.HeaderTimeout, IdleTimeout: idle, MaxHeaderBytes: headerSize,
	}
	if onStop != nil {
		s.http.RegisterOnShutdown(onStop)
	}
	s.done = make(chan struct{})
	go func() {
		s.http.Serve(ln) // ends when s.http is closed
		close(s.done)
	}()
}

// Stop waits for the answers that are being written, for at most limit, and closes every connection.
func (s *Server) Stop(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	<-s.done
}

// ServeHTTP answers a request as Serve does, without a connection: of a client that is not known. For tests.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.http.Handler.ServeHTTP(w, r) }

// apis returns what the HTTP APIs need of the server.
func (s *Server) apis(d Daemon) *api.Server {
	return &api.Server{Backend: backend{s, d}, StallTimeout: s.Config.StallTimeout, Version: buildinfo.Version,
		SlotSavePath: s.Config.SlotSavePath, StrictFields: s.Config.StrictFields,
		NoSlots: s.Config.NoSlots, Defaults: s.Defaults, Log: s.Log, Now: time.Now,
		KVEvents: s.Config.KVEvents, NoPrefixCache: s.Config.NoPrefixCache,
		CountIgnored: func(fields int) { s.Metrics.FieldsIgnored.Add(uint64(fields)) }}
}

// Fail answers a request before its API's handler runs, with an error in the format of that API.
func (s *Server) Fail(w http.ResponseWriter, r *http.Request, e *wire.Error) {
	out := (&api.Server{StallTimeout: s.Config.StallTimeout}).NewWriter(w)
	fail(out, apiOf(r), e)
}
