package ipc

import (
	"context"
	"net"
)

// Peer is who sits at the other end, as the kernel recorded it when the connection was made. It is the identity of
// a client: nothing it sends can change it.
type Peer struct {
	UID uint32
	GID uint32 // the effective group at connect
	PID int32  // 0 where the kernel does not tell; by now it may be another process's
}

type peerKey struct{}

// ConnContext is an http.Server's ConnContext for connections of [Loop.HTTP]: it lets handlers find the client
// with [PeerOf].
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if hc, ok := c.(*httpConn); ok {
		return context.WithValue(ctx, peerKey{}, hc.peer)
	}
	return ctx
}

// PeerOf returns the client of an HTTP request from its context; ok is false when it did not come through
// [ConnContext].
func PeerOf(ctx context.Context) (p Peer, ok bool) {
	p, ok = ctx.Value(peerKey{}).(Peer)
	return p, ok
}
