package daemon

import (
	"log/slog"
	"time"

	"github.com/uma-serve/uma-serve/daemon/kvevents"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/kvsnap"
)

// The KV events of a process (--kv-events): the decode loop compares the pool with what it held before, a goroutine the
// other tiers, and sends the difference to the front, which publishes it. A process without a front publishes itself.

// reportEvents makes the events of l's model. Call stop when the loop has ended.
func (s *Server) reportEvents(l *loop) (stop func()) {
	if s.cfg.KVEvents == "" || s.cfg.NoPrefixCache || l.embed.encoder {
		return func() {}
	}
	send := func(m *kvevents.Message) { s.events.Hub.Apply(l.model.info.Name, m) }
	if f := s.front; f != nil {
		send = func(m *kvevents.Message) {
			if err := f.link.Send(link.KVEvents, 0, -1, kvevents.AppendMessage(nil, m)); err != nil {
				slog.Debug("KV events for the front are lost", "error", err)
			}
		}
	}
	l.journal.events = kvevents.NewReporter(send, l.stores.StoredParts())
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { l.journal.events.Run(done); close(ended) }()
	return func() { close(done); <-ended }
}

// scanEvents compares the pool with what it held, if it has changed and, unless the loop sleeps now, the newest scan is
// old enough.
func (l *loop) scanEvents(now time.Time, sleeps bool) {
	if l.journal.events == nil || !l.journal.events.Due(now, l.core.Tree().Generation(), sleeps) {
		return
	}
	l.journal.events.Scan(func(sequence func(slot, owner uint64, ns uint64, tokens []int32)) {
		l.core.Tree().EachResident(func(r kvsnap.Resident) { sequence(uint64(r.Seq), r.Made, r.NS, r.Tokens) })
	})
}
