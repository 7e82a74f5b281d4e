package agent

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// What a peer asks: an op, a name and a lease. Numbers are little-endian.
//
//	request   op 1, name 32, lease 8
//	opHello   → length 4, the metadata of this agent
//	opGet     → status 1, lease 8, address 8, size 8; the lease keeps the value where it is
//	opEnd     ends a lease; no answer
//	opHas     → status 1
//	opDelete  → status 1
const (
	opHello  = 'M'
	opGet    = 'G'
	opEnd    = 'E'
	opHas    = 'H'
	opDelete = 'D'

	peerYes = 1
	peerNo  = 0

	requestBytes = 1 + 32 + 8
	grantBytes   = 1 + 8 + 8 + 8

	// maxServed bounds the connections of peers, and maxLeases the leases of one.
	maxServed = 128
	maxLeases = 64
	// leaseLimit ends the connection of a peer that keeps a lease for so long: reading takes less.
	leaseLimit = 5 * time.Second
	// handshakeLimit bounds what a stranger can keep a connection for.
	handshakeLimit = 2 * time.Second
)

// servePeers answers the questions of peers until the listener ends.
func (a *agent) servePeers(ctx context.Context, l net.Listener, config *tls.Config) {
	_ = serve(ctx, l, maxServed, func(c net.Conn) {
		if err := c.SetDeadline(time.Now().Add(handshakeLimit)); err != nil {
			return
		}
		t := tls.Server(c, config)
		if err := t.HandshakeContext(ctx); err != nil {
			a.log.Debug("a peer was refused", "address", c.RemoteAddr().String(), "error", err)
			return
		}
		a.servePeer(t)
	})
}

// servePeer answers one peer. Its leases end with the connection.
func (a *agent) servePeer(c net.Conn) {
	leases := map[uint64]*value{}
	defer func() {
		for _, v := range leases {
			a.pool.unpin(v)
		}
	}()
	var request [requestBytes]byte
	var last uint64 // lease
	for {
		end := time.Time{}
		if len(leases) > 0 {
			end = time.Now().Add(leaseLimit)
		}
		if c.SetReadDeadline(end) != nil {
			return
		}
		if _, err := io.ReadFull(c, request[:]); err != nil {
			return
		}
		var name [32]byte
		copy(name[:], request[1:])
		var answer []byte
		switch request[0] {
		case opHello:
			m := a.t.Metadata()
			answer = append(binary.LittleEndian.AppendUint32(nil, uint32(len(m))), m...)
		case opGet:
			answer = make([]byte, grantBytes)
			if len(leases) >= maxLeases {
				break // as if the value were not here
			}
			if v := a.pool.get(name); v != nil {
				last++
				leases[last] = v
				answer[0] = peerYes
				binary.LittleEndian.PutUint64(answer[1:], last)
				binary.LittleEndian.PutUint64(answer[9:], a.t.Base()+uint64(v.room.at))
				binary.LittleEndian.PutUint64(answer[17:], uint64(v.size))
			}
		case opEnd:
			id := binary.LittleEndian.Uint64(request[33:])
			if v := leases[id]; v != nil {
				delete(leases, id)
				a.pool.unpin(v)
			}
			continue
		case opHas:
			answer = []byte{peerNo}
			if v := a.pool.get(name); v != nil {
				a.pool.unpin(v)
				answer[0] = peerYes
			}
		case opDelete:
			a.pool.remove(name)
			answer = []byte{peerYes}
		default:
			return
		}
		if c.SetWriteDeadline(time.Now().Add(askLimit)) != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}
