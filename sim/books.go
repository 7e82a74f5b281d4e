package sim

import (
	"fmt"

	"github.com/uma-serve/uma-serve/meridian/blocks"
)

// Books counts the requests, cells, stored parts and thoughts of a server with batch formation uma at a moment.
type Books struct {
	Requests int // that have not ended
	Waiting  int // of them: those without a place in a batch
	Cells    blocks.Cells
	Quiet    bool // no request, restore, copy or rendering is under way

	Host, Disk int64 // tokens in these tiers
	Parts      int   // that are known in any tier, the fabric included
	Fetches    int   // stored prefixes that are being read
	Thoughts   int   // outside the pool

	// Oldest is the request that got no further for the longest time, while its client read: StillUs microseconds. ""
	// where no request waits or runs.
	Oldest  string
	StillUs int64
}

// Books reads what the server holds at time now. The error says what does not add up.
func (e *Engine) Books(now int64) (b Books, err error) {
	u, ok := e.formation.(*uma)
	if !ok {
		return b, fmt.Errorf("sim: batch formation %q keeps no such books", e.cfg.BatchFormation)
	}
	b.Requests, b.Waiting, b.Cells = len(u.byID), u.Waiting(), u.c.Tree().Cells()
	b.Quiet = b.Requests == 0 && u.c.Live() == 0 && u.c.Quiet() && !u.c.Pending()
	if t := u.stores; t != nil {
		b.Host, b.Parts, b.Fetches, b.Thoughts = t.host.Bytes(), t.index.Len(), len(t.fetches), len(t.thoughts.list)
		if t.disk != nil {
			b.Disk = t.disk.Bytes()
		}
	}
	for _, r := range e.live.slots {
		if r.state != Queued && r.state != Running || r.paused {
			continue
		}
		if still := now - max(r.enqueued, r.moved); b.Oldest == "" || still > b.StillUs {
			b.Oldest, b.StillUs = r.Spec.ID(), still
		}
	}
	if sum := b.Cells.Own + b.Cells.Shared + b.Cells.Cached + b.Cells.Pinned + b.Cells.Free; sum != u.cells {
		return b, fmt.Errorf("sim: %d cells are counted, of %d: %+v", sum, u.cells, b.Cells)
	}
	if n := u.Waiting() + len(u.Running()); n != b.Requests {
		return b, fmt.Errorf("sim: %d requests wait or run, the core's shell has %d", n, b.Requests)
	}
	if err := u.c.Tree().Check(); err != nil {
		return b, fmt.Errorf("sim: prefix tree: %w", err)
	}
	if err := u.stores.check(); err != nil {
		return b, fmt.Errorf("sim: tiers: %w", err)
	}
	return b, nil
}
