package front

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/changes"
	"github.com/uma-serve/uma-serve/daemon/api/control"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
	"github.com/uma-serve/uma-serve/daemon/api/lmstudio"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/front/engineproc"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// routes returns the paths that the front answers itself (httpd.FrontServes), and everything that no engine process
// gets.
func (f *Front) routes() http.Handler {
	var routes []api.Route
	handle := func(method, path string, h http.HandlerFunc) {
		routes = append(routes, api.Route{Method: method, Path: path, Handle: h})
	}
	get := func(path string, h http.HandlerFunc) { handle(http.MethodGet, path, h) }
	get("/info", func(w http.ResponseWriter, r *http.Request) {
		f.serveQuestion(w, r, &wire.Frame{Kind: wire.KindInfo})
	})
	get("/metrics", f.serveMetrics)
	get(httpd.ToolServersPath, func(w http.ResponseWriter, r *http.Request) { f.turns.ServeList(w, r) })
	get("/why", f.serveAsked(control.Why))
	get("/kv", f.serveAsked(control.KV))
	handle(http.MethodPost, "/kv", f.serveAsked(control.KVCommand))
	for _, path := range []string{"/cancel", "/end_think"} {
		handle(http.MethodPost, path, f.serveControl)
	}
	for _, base := range []string{"/v1", ""} {
		get(base+"/health", f.serveHealth)
		get(base+"/models", gemini.OrModels(anthropic.OrModels(f.serveModels, f.servedModels), f.servedModels))
		get(base+"/models/{id...}", gemini.OrModels(anthropic.OrModels(f.serveModel, f.servedModels), f.servedModels))
		get(base+"/models/sse", f.serveModelEvents)
		handle(http.MethodPost, base+"/models", f.serveDownload)
		handle(http.MethodDelete, base+"/models", f.serveDelete)
		handle(http.MethodPost, base+"/models/load", f.serveLoad)
		handle(http.MethodPost, base+"/models/unload", f.serveUnload)
		for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPost} {
			handle(method, base+"/responses/{id...}", f.serveResponse)
		}
		for _, path := range []string{"", "/input_tokens", "/compact"} { // else they are taken for the paths above
			handle(http.MethodPost, base+"/responses"+path, f.serveResponses)
		}
		handle(http.MethodPost, base+"/chat/completions/control", f.serveControl)
	}
	get(gemini.Path, gemini.Models(f.servedModels))
	get(gemini.Path+"/{id...}", gemini.Model(f.servedModels))
	for _, path := range []string{gemini.Path, gemini.PathV1} {
		handle(http.MethodPost, path+"/{id...}", f.serveOther)
	}
	apis := f.in.Web.Apart()
	routes = append(routes, ollama.ChangeRoutes(apis, f)...)
	routes = append(routes, lmstudio.Routes(apis, f)...)
	routes = append(routes, changes.AdapterRoutes(adapterHost{f})...)
	routes = append(routes, f.kept.Routes()...)
	get("/v1/files/{id}/text", f.serveText)
	get("/v1/stream", f.serveStream)
	handle(http.MethodDelete, "/v1/stream", f.serveStop)
	handle(http.MethodPost, "/v1/streams/lookup", f.serveLookup)
	handle(http.MethodPost, "/api/show", f.serveOther)
	get("/api/tags", f.serveTags)
	get("/api/ps", f.servePS)
	get("/api/version", func(w http.ResponseWriter, _ *http.Request) {
		api.AnswerJSON(w, http.StatusOK, map[string]string{"version": ollama.APIVersion,
			"uma_version": buildinfo.Version})
	})
	routes = append(routes, f.in.Web.PageRoutes()...)
	return httpd.Mux(routes, f.serveOther)
}

func (f *Front) serveHealth(w http.ResponseWriter, r *http.Request) {
	var h reports.Health
	f.call(func() { h = f.health() })
	httpd.AnswerHealth(w, r, h)
}

// gather asks every engine process in the name of a request's client.
func (f *Front) gather(ctx context.Context, q *wire.Frame) (peer ipc.Peer, parts []report.Reply) {
	peer, _ = ipc.PeerOf(ctx)
	wait := func() []report.Reply { return nil }
	f.call(func() { wait = f.ask(peer, q) })
	return peer, wait()
}

func (f *Front) serveQuestion(w http.ResponseWriter, r *http.Request, q *wire.Frame) {
	peer, parts := f.gather(r.Context(), q)
	body, e := f.answer(q, peer, parts)
	if e != nil {
		f.answerError(w, r, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(body, '\n'))
}

// serveAsked answers with the answer to the question that read finds in a request.
func (f *Front) serveAsked(read func(*http.Request) (wire.Frame, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := read(r)
		if err != nil {
			f.answerError(w, r, httpd.EventOf(err))
			return
		}
		f.serveQuestion(w, r, &q)
	}
}

func (f *Front) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		f.serveQuestion(w, r, &wire.Frame{Kind: wire.KindMetrics})
		return
	}
	var out bytes.Buffer
	if err := f.writePrometheus(&out, r); err != nil {
		f.answerError(w, r, &wire.Error{Code: wire.InternalFailure, Message: err.Error()})
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Process-Start-Time-Unix", f.in.Metrics.Began())
	w.Write(out.Bytes())
}

// serveControl asks every engine process to end a request, or its thinking: one of them has it.
func (f *Front) serveControl(w http.ResponseWriter, r *http.Request) {
	f.serveOwner(w, r, func(a *httpAnswer) bool {
		var done struct{ Found, Success bool } // of /cancel and /end_think, and of /chat/completions/control
		return json.Unmarshal(a.body, &done) == nil && (done.Found || done.Success)
	})
}

// serveResponse asks every engine process about a stored response: the one that made it has it.
func (f *Front) serveResponse(w http.ResponseWriter, r *http.Request) {
	if f.turns != nil && f.turns.Stored(w, r) {
		if r.Method == http.MethodDelete {
			f.overHTTP(r, nil) // the model's process keeps the first turn by the same id
		}
		return
	}
	f.serveOwner(w, r, func(a *httpAnswer) bool { return a.status != http.StatusNotFound })
}

// serveOwner passes on the answer of the engine process that has the object of a request, or else that of any.
func (f *Front) serveOwner(w http.ResponseWriter, r *http.Request, has func(*httpAnswer) bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.answerError(w, r, &wire.Error{Code: wire.BadRequest, Message: "the body did not come whole: " + err.Error()})
		return
	}
	answers := f.overHTTP(r, body)
	if len(answers) == 0 {
		f.answerError(w, r, &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second,
			Message: "no model is loaded"})
		return
	}
	a := &answers[max(0, slices.IndexFunc(answers, func(a httpAnswer) bool { return has(&a) }))]
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// insider returns a client whose identity the front has made sure of: engine processes ask for no more.
func insider(p ipc.Peer) ipc.Peer { return ipc.Peer{UID: p.UID, GID: p.GID, PID: p.PID} }

// httpAnswer is an engine process's answer to an HTTP request of the front.
type httpAnswer struct {
	m      *served
	proc   *process // of m
	status int
	body   []byte
}

// overHTTP sends a request as it came to every engine process, in its client's name. Those that load are asked too:
// their requests can be cancelled, and one may have answered before the front has read that it is ready.
func (f *Front) overHTTP(r *http.Request, body []byte) []httpAnswer {
	peer, _ := ipc.PeerOf(r.Context())
	var list []asked
	f.call(func() { list = f.reach(peer) })
	out := make([]httpAnswer, len(list))
	var wg sync.WaitGroup
	for i, a := range list {
		wg.Go(func() {
			status, answer, err := engineproc.RoundTrip(a.fd, r, body, answerWithin)
			if err != nil {
				f.log.Warn("an engine process does not answer", "model", a.m.name, "question", r.URL.Path, "error", err)
				return
			}
			out[i] = httpAnswer{a.m, a.proc, status, answer}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(out, func(a httpAnswer) bool { return a.m == nil })
}
