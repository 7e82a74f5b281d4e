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

// EndThinkNamed ends thoughts.
func (s web) EndThinkNamed(owner uint32, id string) bool {
	mine := s.named(owner, id)
	for _, r := range mine {
		s.endThinking(r)
	}
	return len(mine) > 0
}

// named returns owner's requests with this id, or with one of the ids of further answers (n > 1): id-1, id-2, …
func (s *Server) named(owner uint32, id string) (found []*request) {
	s.sessions.Each(func(r *request) {
		if rest, ok := strings.CutPrefix(r.wireID, id); ok && r.conn.UID() == owner &&
			(rest == "" || rest[0] == '-' && strings.Trim(rest[1:], "0123456789") == "") {
			found = append(found, r)
		}
	})
	return found
}

// Info returns the info report.
func (s web) Info() reports.Info { return s.info() }

// Health returns the health report.
func (s web) Health() reports.Health { return s.health() }
