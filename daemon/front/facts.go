package front

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// What the front tells of a model that is not loaded: facts, from its file's header. A question for them does not load
// it, and does not keep a loaded one from being idle.

// inquire says where a question about a model goes that does not need it loaded: to its process where there is one, as
// that knows more, else it is answered here. Poller's goroutine.
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

// serveOther answers what no engine process gets: facts about a model that is not loaded, and the refusal of what needs
// one that there is not, or that cannot be loaded.
func (f *Front) serveOther(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.door.Fail(w, r, &wire.Error{Code: wire.BadRequest, Message: "the body did not come whole: " + err.Error()})
		return
	}
	r = withBody(r, body)
	name, _, _ := daemon.ModelOf(r.URL, body)
	if daemon.NeedsModel(r.Method, r.URL.Path) {
		e := &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second, Message: "the model is not loaded; send " +
			"the request again"}
		f.call(func() {
			if found := f.refusal(name); found != nil {
				e = found
			}
		})
		f.door.Fail(w, r, e)
		return
	}
	a, e := f.asleep(r, name)
	if e != nil {
		f.door.Fail(w, r, e)
		return
	}
	a.Serve(w, r, f.log)
}

// withBody is a request whose body was read.
func withBody(r *http.Request, body []byte) *http.Request {
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

// asleep is the model of a name as if it were not loaded.
func (f *Front) asleep(r *http.Request, name string) (*daemon.Asleep, *wire.Error) {
	f.known(r.Context(), name)
	a := &daemon.Asleep{Facts: &api.Facts{Asleep: true}, Since: f.began}
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
		return nil, &wire.Error{Code: wire.InternalFailure, Message: fmt.Sprintf(
			"model %s is not loaded, and the header of its file cannot be read: %v", m.name, err)}
	}
	f.call(func() {
		if m.title == "" && facts != nil {
			m.entitle(facts.Model.Name)
		}
		a.Name = m.label()
		own := f.own(m, name)
		a.Names = func(string) bool { return own }
	})
	return a, nil
}

// known looks at the folders again if that may find the model of a name.
func (f *Front) known(ctx context.Context, name string) {
	look := false
	f.call(func() { _, look = f.resolve(name) })
	if look {
		f.fresh(ctx)
	}
}

// own reports whether a name is the model's own, and not one that means it for want of another.
func (f *Front) own(m *served, name string) bool {
	if f.configured(name) == m {
		return true
	}
	of, _ := f.onDisk(name)
	return of == m
}

// describes reports whether the answer to a path needs the facts of a model.
func describes(path string) bool { return path == "/props" || path == "/slots" || path == "/api/show" }

// fileFacts are what was read of a model's file while it had a size and a time.
type fileFacts struct {
	mu       sync.Mutex
	size     int64
	modified time.Time
	facts    *api.Facts
	err      error
}

// fileFacts reads the header of the model's file at path, unless that was done and the file is as it was. Not on the
// poller's goroutine.
func (m *served) fileFacts(path string) (*api.Facts, error) {
	if path == "" {
		return nil, fmt.Errorf("it is not on this machine; the first request downloads it")
	}
	k := &m.header
	k.mu.Lock()
	defer k.mu.Unlock()
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if k.size != st.Size() || !k.modified.Equal(st.ModTime()) || k.facts == nil && k.err == nil {
		k.size, k.modified = st.Size(), st.ModTime()
		k.facts, k.err = m.cfg.FileFacts(path)
	}
	return k.facts, k.err
}

// entitle notes the name that the model's file has: where one model is served without a table, answers name it so, and
// requests may. Poller's goroutine.
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

// label is the model's name in answers.
func (m *served) label() string {
	if m.title != "" {
		return m.title
	}
	return m.name
}
