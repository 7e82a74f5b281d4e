package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// overCells returns the error of an arriving request with which its user's unfinished requests would have more cells
// than --limits user_cells.
func (l *loop) overCells(r *request) *wire.Error {
	limit := l.cfg.Limits.UserCells
	if limit == 0 {
		return nil
	}
	held := 0
	for _, o := range l.requests {
		if o != r && o.Owner == r.Owner && !o.life.Over() {
			held += o.Prompt + o.Generated()
		}
	}
	return admission.OverCells(limit, r.Prompt, held)
}

// spend counts the tokens of a request that has ended. One that never started costs nothing.
func (s *Server) spend(r *request) {
	n := 0
	if r.Computed() > 0 {
		n = r.Prompt + r.Generated()
	}
	if r.embed != nil {
		for i := range r.embed.texts[:r.embed.next] {
			n += len(r.embed.texts[i].Tokens)
		}
	}
	s.quotas.Spend(r.Owner, n, time.Now())
}
