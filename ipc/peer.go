package ipc

import (
	"hash/maphash"
	"net/netip"
)

// Peer is who sits at the other end, as the kernel recorded it when the connection was made. It is the identity of
// a client: nothing it sends can change it, except that an API key names another owner for a request over TCP.
type Peer struct {
	// UID is the client's user, or the owner that an API key names (see package apikeys): whose quota, whose cache
	// namespace. It means nothing while Unknown is set.
	UID uint32
	GID uint32 // the effective group at connect; 0 over TCP, where the kernel does not tell
	PID int32  // 0 where the kernel does not tell; by now it may be another process's

	// Over TCP alone: the two ends, IPv4-mapped IPv6 addresses as IPv4; the listener's address; and why the kernel does
	// not tell the user, nil if it does.
	Local, Remote netip.AddrPort
	Listener      string
	Unknown       error
}

// TCP reports whether the client came over TCP.
func (p *Peer) TCP() bool { return p.Remote.IsValid() }

// holder is whose connections a connection counts with: those of a user, or of an unknown user's address.
type holder uint64

var addressSeed = maphash.MakeSeed()

// holder is p's: its user; without one its IPv4 address, or the network of its IPv6 address (the first 64 bits, which
// one machine chooses from at will). Two addresses may share a holder by chance; the random seed keeps
// clients from choosing such addresses.
func (p *Peer) holder() holder {
	if p.Unknown == nil {
		return holder(p.UID)
	}
	a := p.Remote.Addr()
	if a.Is6() {
		network, err := a.WithZone("").Prefix(64)
		if err == nil {
			a = network.Addr()
		}
	}
	return 1<<32 | holder(maphash.Comparable(addressSeed, a)>>32)
}
