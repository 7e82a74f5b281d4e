package ipc

import (
	"hash/maphash"
	"net/netip"

	"github.com/uma-serve/uma-serve/ipc/share"
)

// Peer is the identity of a client, which the kernel recorded at connect. The client cannot change it, except that an
// API key names another owner for a request over TCP.
type Peer struct {
	// UID is the client's user, or the owner of its API key (package apikeys). Quotas and the cache namespace depend on
	// it. It is invalid if Unknown is set.
	UID uint32
	GID uint32 // effective group at connect; 0 over TCP, where the kernel does not report it
	PID int32  // 0 if the kernel does not report it; the process may have ended since

	// Only over TCP: the two ends, IPv4-mapped IPv6 addresses as IPv4; the listener's address; and why the user is
	// unknown, nil if it is known.
	Local, Remote netip.AddrPort
	Listener      string
	Unknown       error

	// Passed is set in an engine process for the clients of its front, and Admitted then says whether --listen-mode
	// lets UID ask over TCP: the user database is the front's.
	Passed, Admitted bool
}

// TCP reports whether the client came over TCP.
func (p *Peer) TCP() bool { return p.Remote.IsValid() }

var addressSeed = maphash.MakeSeed()

// holder returns the party that p's sessions count for: its user, else its IPv4 address or the /64 network of its IPv6
// address, within which one machine can choose addresses freely. Two holders may collide; as the seed is random,
// clients cannot cause it.
func (p *Peer) holder() share.Holder {
	if p.Unknown == nil {
		return share.Holder(p.UID)
	}
	a := p.Remote.Addr()
	if a.Is6() {
		network, err := a.WithZone("").Prefix(64)
		if err == nil {
			a = network.Addr()
		}
	}
	return 1<<32 | share.Holder(maphash.Comparable(addressSeed, a)>>32)
}
