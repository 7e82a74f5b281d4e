package front

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/documents"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The front answers questions about a model that is not loaded with facts from its file's header. Such a question does
// not load the model, and does not count as a use of a loaded one.

// inquire routes a question that does not need its model loaded: to the model's process if that is ready, because it
// knows more; otherwise this process answers. Poller's goroutine.
func (f *Front) inquire(c *ipc.Conn, name string) (ipc.Verdict, *ipc.Link) {
	if f.draining {
		return ipc.Serve, nil
	}
	m, look := f.resolve(name)
	switch {
	case look:
		f.found.waiting = append(f.found.waiting, c)
		f.scan()
		return ipc.Wait, nil
	case m == nil || m.state != ready || m.proc.dead:
		return ipc.Serve, nil
	}
	m.calledBy(name)
	return ipc.Pass, m.proc.link
}

// serveOther answers the HTTP requests that go to no engine process: questions about a model that is not loaded, and
// requests that are refused because their model does not exist or cannot be loaded.
func (f *Front) serveOther(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.answerError(w, r, &wire.Error{Code: wire.BadRequest, Message: "the body did not come whole: " + err.Error()})
		return
	}
	r = withBody(r, body)
	if documents.Asks(r, body) {
		f.serveDocuments(w, r, body)
		return
	}
	name, _, _ := httpd.ModelOf(r.URL, body)
	if httpd.NeedsModel(r.Method, r.URL.Path) {
		e := &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second, Message: "the model is not loaded; send " +
			"the request again"}
		f.call(func() {
			if found := f.refusal(name); found != nil {
				e = found
			}
		})
		f.answerError(w, r, e)
		return
	}
	a, e := f.asleep(r, name)
	if e != nil {
		f.answerError(w, r, e)
		return
	}
	a.Serve(w, r, f.log)
}

// withBody returns r with a body that was read already.
func withBody(r *http.Request, body []byte) *http.Request {
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

// asleep returns the model of a name as one that is not loaded, even if it is.
func (f *Front) asleep(r *http.Request, name string) (*httpd.Asleep, *wire.Error) {
	f.known(r.Context(), name)
	a := &httpd.Asleep{Facts: &api.Facts{Asleep: true}, Since: f.began, StrictFields: f.cfg.StrictFields,
		NoSlots:  f.cfg.NoSlots,
		KVEvents: f.cfg.KVEvents, NoPrefixCache: f.cfg.NoPrefixCache}
	var m *served
	var path string
	var e *wire.Error
	f.call(func() {
		if m = f.find(name); m == nil {
			e = f.unknownModel(name)
			return
		}
		path = f.fileOf(m)
	})
	if e != nil {
		return nil, e
	}
	facts, err := m.fileFacts(path)
	switch {
	case err == nil:
		a.Facts = facts
	case describes(r.URL.Path):
		return nil, wire.Errorf(wire.InternalFailure, "model %s is not loaded, and the header of its file cannot be "+
			"read: %v", m.name, err)
	}
	f.call(func() {
		if m.title == "" && facts != nil {
			m.entitle(facts.Model.Name)
		}
		a.Name, a.Adapters = m.label(), m.adaptersOf()
	})
	return a, nil
}

// known scans the folders again if that may find the model of a name.
func (f *Front) known(ctx context.Context, name string) {
	look := false
	f.call(func() { _, look = f.resolve(name) })
	if look {
		f.fresh(ctx)
	}
}

// own reports whether a name is the model's, rather than an unknown name for which the default model serves.
func (f *Front) own(m *served, name string) bool {
	if f.configured(name) == m {
		return true
	}
	of, _ := f.onDisk(name)
	return of == m
}

// describes reports whether the answer to a path needs the facts of a model.
func describes(path string) bool { return path == "/props" || path == "/slots" || path == "/api/show" }

// fileFacts returns the facts from the model's file at path. Not on the poller's goroutine.
func (m *served) fileFacts(path string) (*api.Facts, error) {
	if path == "" {
		return nil, fmt.Errorf("it is not on this machine; the first request downloads it")
	}
	return m.header.Of(m.cfg, path)
}

// entitle records the name in the header of the model's file. If one model is served without a table, answers have this
// name, and requests may use it. Poller's goroutine.
func (m *served) entitle(title string) {
	if m.f.any && m == m.f.def && title != "" && m.title != title {
		m.title = title
		m.tellNames()
	}
}

// titled reports whether a name is the one that the model's file has.
func (m *served) titled(name string) bool {
	return m.title != "" && strings.EqualFold(strings.TrimSuffix(name, ":latest"), m.title)
}

// label returns the model's name in answers.
func (m *served) label() string {
	if m.title != "" {
		return m.title
	}
	return m.name
}
