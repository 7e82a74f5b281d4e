package kvevents

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/uma-serve/uma-serve/ipc/sockdiag"
	"github.com/uma-serve/uma-serve/metrics"
)

// Publisher is a Hub with its Server. A function accepts the users that may subscribe: the kernel knows the
// user of a connection within the machine.
type Publisher struct {
	Hub *Hub
	*Server
	finder *sockdiag.Finder
}

// Open publishes at a loopback address.
func Open(at netip.AddrPort, may func(uid uint32) bool, log *slog.Logger) (*Publisher, error) {
	finder, err := sockdiag.New()
	if err != nil {
		return nil, fmt.Errorf("--kv-events needs a system that tells the users of connections, which is Linux: %w",
			err)
	}
	p := &Publisher{Hub: NewHub(time.Now), finder: finder}
	if p.Server, err = Listen(p.Hub, at, log, func(c *net.TCPConn) error { return p.admit(c, may) }); err != nil {
		finder.Close()
		return nil, fmt.Errorf("--kv-events tcp://%s: %w", at, err)
	}
	log.Info("publishing KV events", "endpoint", p.Endpoint(), "replay", p.ReplayEndpoint())
	return p, nil
}

// admit returns an error unless the user of a connection may subscribe.
func (p *Publisher) admit(c *net.TCPConn, may func(uid uint32) bool) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var uid uint32
	var failed error
	if err := raw.Control(func(fd uintptr) {
		local, remote := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
		uid, failed = p.finder.UID(int(fd), local, remote)
	}); err != nil {
		return err
	}
	if failed == nil && !may(uid) {
		failed = fmt.Errorf("user %d may not read KV events: only root and the daemon's user may", uid)
	}
	return failed
}

// Bind connects the metrics.
func (p *Publisher) Bind(m *metrics.Metrics) {
	m.BindKVEvents(func() metrics.KVEvents {
		st := p.Hub.Stats()
		out := metrics.KVEvents{Subscribers: p.Subscribers(), Batches: st.Batches, Dropped: p.Dropped(),
			Blocks: st.Blocks}
		for t := range NumTiers {
			out.Stored += st.Stored[t]
			out.Removed += st.Removed[t]
		}
		return out
	})
}

// Close ends every connection.
func (p *Publisher) Close() {
	p.Server.Close()
	p.finder.Close()
}
