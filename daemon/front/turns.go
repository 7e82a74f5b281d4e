package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/front/engineproc"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/kept"
	"github.com/uma-serve/uma-serve/daemon/toolbox"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
	"github.com/uma-serve/uma-serve/daemon/toolturns"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// openTurns makes the MCP servers of the configuration known. None is started.
func (f *Front) openTurns() {
	if len(f.cfg.MCP) == 0 {
		return
	}
	f.box = toolbox.New(f.cfg.MCP, toolbox.Options{Program: f.opts.Program, Args: f.opts.bridge(), Log: f.log})
	f.turns = &toolturns.Server{Box: f.box, Known: f.cfg.MCP, Log: f.log, Ask: f.askModel, Fail: f.answerError,
		Owner: func(r *http.Request) (uint32, bool) {
			peer, _ := ipc.PeerOf(r.Context())
			return peer.UID, f.cfg.Privileged(f.in.Access.OwnerOf(r, peer))
		}}
}

// bridge returns the arguments of a bridge process.
func (o *Options) bridge() []string {
	if o.BridgeArgs != nil {
		return o.BridgeArgs
	}
	return []string{toolbox.BridgeArg}
}

// serveResponses answers a request for a response that no model's process got.
func (f *Front) serveResponses(w http.ResponseWriter, r *http.Request) {
	if f.turns == nil {
		f.serveOther(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.answerError(w, r, &wire.Error{Code: wire.BadRequest, Message: "the body did not come whole: " + err.Error()})
		return
	}
	r = withBody(r, body)
	if !setup.Asks(r, body) {
		f.serveOther(w, r)
		return
	}
	if body, err = f.rewritten(r, body); err != nil {
		f.failed(w, r, err)
		return
	}
	f.turns.ServeHTTP(w, withBody(r, body))
}

// modelWait is the interval at which a request of the front looks for its model, and longestWait the most time.
const (
	modelWait   = 50 * time.Millisecond
	longestWait = 10 * time.Minute
)

// askModel has the process of the model that a body of /v1/responses names answer it, in the name of ctx's client.
func (f *Front) askModel(ctx context.Context, body []byte) (*http.Response, error) {
	peer, ok := ipc.PeerOf(ctx)
	if !ok {
		return nil, &api.Error{Code: wire.InternalFailure, Message: "the client is not known"}
	}
	return f.askAs(ctx, peer, "/v1/responses",
		http.Header{"Content-Type": {"application/json"}, setup.TurnHeader: {"1"}}, body)
}

// openKept makes files and batches of clients known. None is read.
func (f *Front) openKept() {
	f.kept = kept.New(kept.Options{Dir: f.opts.KeptDir, Fail: f.answerError, Log: f.log,
		Owner: func(r *http.Request) uint32 {
			peer, _ := ipc.PeerOf(r.Context())
			return peer.UID
		},
		Ask: func(ctx context.Context, owner uint32, path string, head http.Header, body []byte) (*http.Response,
			error) {
			body, err := f.docs.Rewrite(ctx, owner, body)
			if err != nil {
				return nil, err
			}
			return f.askAs(ctx, ipc.Peer{UID: owner}, path, head, body)
		}})
}

// askAs has the process of the model that a body names answer a request for a path, in a client's name. The model is
// loaded if it is not. The front has read the body's documents.
func (f *Front) askAs(ctx context.Context, peer ipc.Peer, path string, header http.Header, body []byte) (*http.Response,
	error) {
	name, _, _ := httpd.ModelOf(pathOf(path), body)
	f.known(ctx, name)
	m, fd, err := f.passWhenLoaded(ctx, peer, name)
	if err != nil {
		return nil, err
	}
	leave := func() { f.call(func() { m.inside--; m.touch() }) }
	conn, err := engineproc.Conn(fd)
	if err != nil {
		leave()
		return nil, err
	}
	resp, err := engineproc.Post(ctx, conn, path, header, body, leave)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kept.ErrLost, err)
	}
	return resp, nil
}

// passWhenLoaded passes a new connection to the process of a model, which it waits for. The caller decrements m.inside.
func (f *Front) passWhenLoaded(ctx context.Context, peer ipc.Peer, name string) (m *served, fd int, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	tick := time.NewTicker(modelWait)
	defer tick.Stop()
	for {
		var refused *wire.Error
		found := false
		if !f.call(func() {
			if refused = f.refusal(name); refused != nil {
				return
			}
			m = f.find(name)
			m.calledBy(name)
			m.touch()
			f.want(m)
			if (m.state == loading || m.state == ready) && !m.proc.dead {
				if fd, err = f.loop.PassNew(m.proc.link, insider(peer)); err == nil {
					m.inside++
					found = true
				}
			}
		}) {
			return nil, -1, errors.New("the server is ending")
		}
		switch {
		case refused != nil:
			return nil, -1, (*api.Error)(refused)
		case err != nil || found:
			return m, fd, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, -1, context.Cause(ctx)
		}
	}
}
