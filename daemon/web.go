package daemon

import (
	"strings"

	"github.com/uma-serve/uma-serve/daemon/served"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// web is a Server as package httpd uses it.
type web struct {
	*Server
	*served.About
}

// Open opens a client within the process.
func (s web) Open(peer ipc.Peer) (*ipc.Local, error) { return s.poller.Open(peer) }

// CancelNamed cancels.
func (s web) CancelNamed(owner uint32, id string) bool {
	mine := s.sessions.named(owner, id)
	for _, r := range mine {
		s.cancel(r)
	}
	return len(mine) > 0
}

// EndThinkNamed ends thoughts.
func (s web) EndThinkNamed(owner uint32, id string) bool {
	mine := s.sessions.named(owner, id)
	for _, r := range mine {
		s.endThinking(r)
	}
	return len(mine) > 0
}

// named returns owner's requests with this id, or with one of the ids of further answers (n > 1): id-1, id-2, …
func (t *sessions) named(owner uint32, id string) (found []*request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, live := range t.live {
		if c.UID() != owner {
			continue
		}
		for _, r := range live {
			if rest, ok := strings.CutPrefix(r.wireID, id); ok &&
				(rest == "" || rest[0] == '-' && strings.Trim(rest[1:], "0123456789") == "") {
				found = append(found, r)
			}
		}
	}
	return found
}

// Info is the info report.
func (s web) Info() reports.Info { return s.info() }

// Health is the health report.
func (s web) Health() reports.Health { return s.health() }
