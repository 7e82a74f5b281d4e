package daemon

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// Door is the part of a Server that a front uses: listening sockets, poller, HTTP server, access control and connection
// counters. It has no model.
type Door struct {
	s        *Server
	routes   http.Handler
	pollDone chan error
}

// OpenDoor binds the sockets. r decides which process serves a connection; of the requests that the front answers
// itself, h serves those of the framed protocol and routes those over HTTP.
func OpenDoor(cfg *config.Config, log *slog.Logger, h ipc.Handler, r ipc.Router, routes http.Handler) (*Door, error) {
	s, err := newServer(cfg, log, parts{handler: h, router: r})
	if err != nil {
		return nil, err
	}
	return &Door{s: s, routes: routes}, nil
}

// Start begins to serve. The channel receives the poller's error if the poller ends before Stop.
func (d *Door) Start() <-chan error {
	d.pollDone = make(chan error, 1)
	go func() { d.pollDone <- d.s.poller.Run() }()
	d.s.web.Serve(d.s.poller.HTTP(), d.routes, nil)
	return d.pollDone
}

// Stop ends listening, sends the output that waits for clients, for at most flush, and closes every connection.
func (d *Door) Stop(flush time.Duration) {
	d.s.poller.Stop(flush)
	<-d.pollDone
	d.s.web.Stop(flush)
	ipc.CloseAll(d.s.listeners)
}

// Close gives up a Door that was not started.
func (d *Door) Close() { ipc.CloseAll(d.s.listeners) }

// Loop returns the poller.
func (d *Door) Loop() *ipc.Loop { return d.s.poller }

// Metrics returns the front's own metrics: connections, refusals, memory.
func (d *Door) Metrics() *metrics.Metrics { return d.s.metrics }

// Drain refuses, from now on, the requests that the front answers itself.
func (d *Door) Drain() { d.s.draining.Store(true) }

// StartOf returns the start message for an engine process with this configuration: options, sockets and API keys.
func (d *Door) StartOf(c *config.Config) (EngineStart, error) {
	options, sources, err := c.Encode()
	if err != nil {
		return EngineStart{}, err
	}
	st := EngineStart{Config: options, Sources: sources, Socket: d.s.socket(), Listen: d.s.listen(),
		Listeners: d.s.infoListeners(), Sandbox: c.Sandbox}
	if d.s.access.Keys != nil {
		st.Keys = d.s.access.Keys.Keys().Digests()
	}
	return st, nil
}

// Keys rereads the file of --api-keys if it has changed and returns the digests of its keys; nil without the option.
func (d *Door) Keys() json.RawMessage {
	if d.s.access.Keys == nil {
		return nil
	}
	return d.s.access.Keys.Keys().Digests()
}

// May reports whether the client of an HTTP request over TCP may ask at all, as the HTTP server would decide.
func (d *Door) May(r *http.Request, peer ipc.Peer) bool {
	if !peer.TCP() {
		return true
	}
	if d.s.access.Guard.CheckHost(r, peer.Local.Addr()) != nil || d.s.access.Guard.CheckOrigin(r) != nil {
		return false
	}
	_, refused := d.s.access.Client(r, peer)
	return refused == nil
}

// OwnerOf returns the uid of the user, or the number of the API key's owner, that sent an HTTP request.
func (d *Door) OwnerOf(r *http.Request, peer ipc.Peer) uint32 {
	if of, refused := d.s.access.Client(r, peer); refused == nil {
		return of.UID
	}
	return peer.UID
}

// Admits reports whether --listen-mode lets the user of a client over TCP ask without an API key. It may look into the
// user database.
func (d *Door) Admits(peer ipc.Peer) bool {
	return peer.TCP() && peer.Unknown == nil && d.s.access.Allows(peer.UID)
}

// Dump appends metrics, a JSON document, to --metrics-file as a line, or writes them to the log.
func (d *Door) Dump(doc []byte) { report.DumpMetrics(doc, d.s.cfg.MetricsFile, d.s.log) }

// Info returns the front's own info report.
func (d *Door) Info() wire.Info { return d.s.info() }

// Owner returns the name of the API key owner with this number; "" if uid is a user's.
func (d *Door) Owner(uid uint32) string { return d.s.access.OwnerName(uid) }

// Privileged reports whether a user may look at all requests and prefixes.
func (d *Door) Privileged(uid uint32) bool { return d.s.cfg.Privileged(uid) }

// Fail answers an HTTP request with an error in the form of the API that its path belongs to.
func (d *Door) Fail(w http.ResponseWriter, r *http.Request, e *wire.Error) {
	d.s.web.Fail(w, r, e)
}

// Rejected counts a framed request that the front answers with e.
func (d *Door) Rejected(e *wire.Error) { d.s.metrics.Rejected(string(e.Code)) }

// Scrape returns the front's own metrics in Prometheus's text format.
func (d *Door) Scrape() []byte {
	w := &httpd.Kept{}
	d.s.metrics.PrometheusHandler().ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/metrics"},
		Header: http.Header{}})
	return w.Body
}

// Health returns the front's own health report, which covers no model.
func (d *Door) Health() wire.Health { return d.s.health() }
