package ipc

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// A peer as the front tells it to an engine process, before the bytes that were read of its connection: UID, GID and
// PID in four bytes each, Admitted in one, and then four texts, each behind its length in two bytes: both addresses,
// the listener, and why the user is unknown. All numbers are little-endian. Every connection's first token waits for
// it.
const (
	peerNumbers = 3*4 + 1
	peerTexts   = 4
)

func appendPassed(dst []byte, p *Peer) []byte {
	order := binary.LittleEndian
	dst = order.AppendUint32(dst, p.UID)
	dst = order.AppendUint32(dst, p.GID)
	dst = order.AppendUint32(dst, uint32(p.PID))
	admitted := byte(0)
	if p.Admitted {
		admitted = 1
	}
	dst = append(dst, admitted)
	text := func(write func(dst []byte) []byte) {
		at := len(dst)
		dst = write(append(dst, 0, 0))
		dst = dst[:min(len(dst), at+2+1<<16-1)]
		order.PutUint16(dst[at:], uint16(len(dst)-at-2))
	}
	for _, a := range []netip.AddrPort{p.Local, p.Remote} {
		text(func(dst []byte) []byte {
			if !a.IsValid() {
				return dst
			}
			return a.AppendTo(dst)
		})
	}
	text(func(dst []byte) []byte { return append(dst, p.Listener...) })
	text(func(dst []byte) []byte {
		if p.Unknown == nil {
			return dst
		}
		return append(dst, p.Unknown.Error()...)
	})
	return dst
}

// parsePassed returns the peer and what follows it.
func parsePassed(body []byte) (p Peer, unread []byte, err error) {
	if len(body) < peerNumbers || body[peerNumbers-1] > 1 {
		return Peer{}, nil, errLink
	}
	order := binary.LittleEndian
	p = Peer{UID: order.Uint32(body), GID: order.Uint32(body[4:]), PID: int32(order.Uint32(body[8:])),
		Admitted: body[peerNumbers-1] == 1, Passed: true}
	unread = body[peerNumbers:]
	var texts [peerTexts]string
	for i := range texts {
		if len(unread) < 2 {
			return Peer{}, nil, errLink
		}
		n := int(order.Uint16(unread))
		if unread = unread[2:]; len(unread) < n {
			return Peer{}, nil, errLink
		}
		texts[i], unread = string(unread[:n]), unread[n:]
	}
	for i, a := range []*netip.AddrPort{&p.Local, &p.Remote} {
		if texts[i] == "" {
			continue
		}
		if *a, err = netip.ParseAddrPort(texts[i]); err != nil {
			return Peer{}, nil, errLink
		}
	}
	p.Listener = texts[2]
	if texts[3] != "" {
		p.Unknown = errors.New(texts[3])
	}
	return p, unread, nil
}
