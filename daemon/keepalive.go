package daemon

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/ipc"
)

// The keep_alive of ollama's API: for how long the model of a request stays loaded without another one. An engine
// process tells its front, which unloads models.

// keepAlive reads the keep_alive of a request for this process. It counts for the requests of root and of the server's
// user, and with --allow-model-changes for those of everyone.
func (s *Server) keepAlive(r *http.Request, body []byte) {
	f := s.front
	if !strings.HasPrefix(r.URL.Path, "/api/") || r.Method != http.MethodPost {
		return
	}
	peer, _ := ipc.PeerOf(r.Context())
	if !s.cfg.AllowModelChanges && !s.cfg.Privileged(s.in.Access.OwnerOf(r, peer)) {
		return
	}
	keep := int64(link.KeepDefault)
	switch d, ok, err := ollama.KeepAliveOf(body); {
	case err != nil: // its handler says what is wrong
		return
	case ok:
		keep = int64(d)
	}
	f.keepMu.Lock() // messages leave in the order of the values
	defer f.keepMu.Unlock()
	if f.kept != keep {
		f.kept = keep
		_ = f.link.Send(link.Keep, 0, -1, strconv.AppendInt(nil, keep, 10)) // fails when the front has ended
	}
}
