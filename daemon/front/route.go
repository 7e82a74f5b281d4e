package front

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api/resume"
	"github.com/uma-serve/uma-serve/daemon/documents"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// router is the Front as ipc.Router.
type router struct{ f *Front }

// Route finds the model of a message, and its process.
func (r router) Route(c *ipc.Conn, p split.Protocol, message []byte, end bool) (ipc.Verdict, *ipc.Link) {
	switch p {
	case split.Framed:
		name, found, _ := jsontext.Member(message, "model")
		if !found && !isRequest(message) {
			return ipc.Serve, nil
		}
		v, k := r.f.dispatch(c, name)
		if v == ipc.Wait {
			note(c, message)
		}
		return v, k
	case split.Newline:
		line, _, whole := bytes.Cut(message, []byte{'\n'})
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if kind, err := split.ParseLine(line); whole && err == nil && kind == split.LineMetrics {
			return ipc.Serve, nil
		}
		if !whole && !end &&
			(strings.HasPrefix("metrics", string(line)) || strings.HasPrefix("/metrics", string(line))) {
			return ipc.NeedMore, nil
		}
		return r.f.dispatch(c, "")
	}
	return r.f.routeHTTP(c, message)
}

// isRequest reports whether a frame asks for generation or embeddings, and is no question to the daemon.
func isRequest(payload []byte) bool {
	if kind, found, _ := jsontext.Member(payload, "event"); found {
		return kind == wire.KindEmbed.String()
	}
	_, found, _ := jsontext.Member(payload, "type")
	return !found
}

// Left forgets a connection that waited.
func (r router) Left(c *ipc.Conn, k *ipc.Link) {
	if k != nil {
		return
	}
	of := func(o *ipc.Conn) bool { return o == c }
	r.f.found.waiting = slices.DeleteFunc(r.f.found.waiting, of)
	for _, m := range r.f.models {
		m.waiting = slices.DeleteFunc(m.waiting, of)
	}
}

// dispatch routes a request for a model.
func (f *Front) dispatch(c *ipc.Conn, name string) (ipc.Verdict, *ipc.Link) {
	if f.draining {
		return ipc.Serve, nil
	}
	m, look := f.resolve(name)
	if look {
		f.found.waiting = append(f.found.waiting, c)
		f.scan()
		return ipc.Wait, nil
	}
	if m == nil {
		return ipc.Serve, nil
	}
	m.calledBy(name)
	m.touch()
	if m.state == unloaded || m.state == down {
		if f.barred(m) {
			return ipc.Serve, nil
		}
		if f.want(m); m.state == down {
			return ipc.Serve, nil
		}
	}
	if (m.state == loading || m.state == ready) && !m.proc.dead {
		return ipc.Pass, m.proc.link
	}
	m.waiting = append(m.waiting, c)
	return ipc.Wait, nil
}

// refusal returns the error with which the front answers a request for a model; nil: an engine process can serve it.
func (f *Front) refusal(name string) *wire.Error {
	m := f.find(name)
	switch {
	case f.draining:
		return shuttingDown()
	case m == nil:
		return f.unknownModel(name)
	case m.state == down && m.down != nil:
		e := *m.down
		return &e
	case f.barred(m):
		return wire.Errorf(wire.BadRequest, "model %s is not loaded, and requests load none (--autoload=false); POST "+
			"/models/load loads it", m.name)
	}
	return nil
}

// barred reports whether a model is not loaded and requests must not load it. The default model's first load begins by
// itself, perhaps a moment after the first request.
func (f *Front) barred(m *served) bool {
	return !f.cfg.Autoload && m.state == unloaded && (m != f.def || m.loads > 0)
}

func shuttingDown() *wire.Error {
	return &wire.Error{Code: wire.ShuttingDown, Message: "the server is shutting down; try again when it is back"}
}

// maxHead is the longest head of an HTTP request that is parsed here, in bytes; net/http refuses a longer one.
const maxHead = 64 << 10

// routeHTTP routes an HTTP request, of which message is the part that has arrived.
func (f *Front) routeHTTP(c *ipc.Conn, message []byte) (ipc.Verdict, *ipc.Link) {
	headEnd := httpd.EndOfHead(message)
	if headEnd < 0 {
		if len(message) > maxHead {
			return ipc.Serve, nil
		}
		return ipc.NeedMore, nil
	}
	// Before the head is read: a body that comes byte by byte is looked at once for each doubling.
	if held := len(message); c.Routing.Seen > 0 && held < c.Routing.Seen+c.Routing.Seen/2 && held < c.Routing.Whole &&
		!bytes.HasSuffix(message, []byte("0\r\n\r\n")) {
		return ipc.NeedMore, nil
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(message)))
	if err != nil || httpd.FrontServes(r.Method, r.URL) {
		return ipc.Serve, nil // net/http reports the error
	}
	peer := c.Peer()
	if !f.in.Access.May(r, peer) { // a client without access does not load a model
		return ipc.Serve, nil
	}
	body, rest := readBody(r)
	name, found, ended := httpd.ModelOf(r.URL, body)
	if f.turns != nil && setup.Responds(r) { // the tools may be anywhere in the body
		found, ended = found && rest == nil, ended && rest == nil
	}
	switch {
	case found, ended && len(body) > 0, rest == nil, len(body) > f.cfg.MaxFrameBytes:
	case errors.Is(rest, io.ErrUnexpectedEOF):
		if c.Routing.Seen == 0 && strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
			c.Reply([]byte("HTTP/1.1 100 Continue\r\n\r\n"))
		}
		c.Routing.Seen, c.Routing.Whole = len(message), headEnd+int(min(max(r.ContentLength, 0), 1<<30))
		if r.ContentLength < 0 {
			c.Routing.Whole = 1 << 30
		}
		return ipc.NeedMore, nil
	}
	c.Routing.Seen, c.Routing.Whole = 0, 0
	if m := f.find(name); r.URL.Path == httpd.LivePath && m != nil && !m.live() {
		return ipc.Serve, nil // watching a model does not load it
	}
	if peer.TCP() {
		c.Admit(f.in.Access.Admits(peer))
	}
	if !httpd.NeedsModel(r.Method, r.URL.Path) {
		return f.inquire(c, name)
	}
	if f.turns != nil && setup.Asks(r, body) || documents.Asks(r, body) {
		return ipc.Serve, nil
	}
	v, k := f.dispatch(c, name)
	if v == ipc.Wait {
		c.Routing.Stream, c.Routing.Owner = r.Header.Get(resume.Header), f.in.Access.OwnerOf(r, peer)
		c.Routing.Path = r.URL.Path
	}
	return v, k
}

// readBody returns the part of a request's body that has arrived, and io.ErrUnexpectedEOF if it is not complete.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	b, err := io.ReadAll(r.Body)
	return b, err
}

// handler is the Front as ipc.Handler: it answers the framed requests that go to no engine process.
type handler struct{ f *Front }

// Request refuses a request that Route has sent to no engine process.
func (h handler) Request(c ipc.Client, r *wire.Request) {
	e := h.f.refusal(r.Model)
	if e == nil {
		e = &wire.Error{Code: wire.ModelUnready, Message: "the model is not loaded; send the request again"}
	}
	e.ID = r.ID
	h.f.in.Metrics.Rejected(string(e.Code))
	c.ReplyEvent(wire.ErrorEvent(e))
	c.Done(r.ID)
}

// Embed refuses like Request.
func (h handler) Embed(c ipc.Client, w *wire.Embed) {
	h.Request(c, &wire.Request{ID: w.ID, Model: w.Model})
}

// Line refuses like Request.
func (h handler) Line(c *ipc.Conn, _ string) {
	e := h.f.refusal("")
	if e == nil {
		e = &wire.Error{Code: wire.ModelUnready, Message: "the model is not loaded; send the line again"}
	}
	h.f.in.Metrics.Rejected(string(e.Code))
	c.ReplyEvent(wire.ErrorEvent(e))
	c.Done("")
}

func (h handler) Cancel(ipc.Client, string)    {}
func (h handler) EndThink(ipc.Client, string)  {}
func (h handler) Writable(ipc.Client)          {}
func (h handler) Closed(ipc.Client, ipc.Cause) {}
