package ipc

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
)

var passedPeers = map[string]Peer{
	"none":   {},
	"local":  {UID: 1000, GID: 100, PID: 4711},
	"limits": {UID: math.MaxUint32, GID: math.MaxUint32, PID: -1, Admitted: true},
	"TCP": {UID: 5, Local: netip.MustParseAddrPort("127.0.0.1:8737"), Remote: netip.MustParseAddrPort("127.0.0.1:4000"),
		Listener: "127.0.0.1:8737", Admitted: true},
	"unknown": {Local: netip.MustParseAddrPort("[::1]:1"), Remote: netip.MustParseAddrPort("[fe80::1%eth0]:65535"),
		Unknown: errors.New("no such socket\nat all")},
}

// TestPassedPeer: the engine process gets all facts that the front has about a peer, and the bytes read from the
// connection stays as it is.
func TestPassedPeer(t *testing.T) {
	for name, want := range passedPeers {
		t.Run(name, func(t *testing.T) {
			got, unread, err := parsePassed(append(appendPassed(nil, &want), "\x00rest"...))
			if err != nil || string(unread) != "\x00rest" {
				t.Fatalf("%q, %v", unread, err)
			}
			if (got.Unknown == nil) != (want.Unknown == nil) || got.Unknown != nil &&
				got.Unknown.Error() != want.Unknown.Error() {
				t.Errorf("unknown: %v, want %v", got.Unknown, want.Unknown)
			}
			got.Unknown, want.Unknown, want.Passed = nil, nil, true
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func TestPassedPeerWithALongText(t *testing.T) {
	p := Peer{Listener: strings.Repeat("x", 1<<17)}
	got, unread, err := parsePassed(appendPassed(nil, &p))
	if err != nil || len(unread) != 0 || got.Listener != p.Listener[:1<<16-1] {
		t.Errorf("%d bytes of %d, %d unread, %v", len(got.Listener), len(p.Listener), len(unread), err)
	}
}

func FuzzPassedPeer(f *testing.F) {
	for _, p := range passedPeers {
		whole := appendPassed(nil, &p)
		f.Add(whole)
		f.Add(whole[:len(whole)-1])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p, unread, err := parsePassed(body)
		if err != nil {
			return
		}
		again, rest, err := parsePassed(append(appendPassed(nil, &p), unread...))
		if err != nil || !bytes.Equal(rest, unread) || again.UID != p.UID || again.Remote != p.Remote ||
			again.Listener != p.Listener || again.Local != p.Local {
			t.Errorf("%+v became %+v, %v", p, again, err)
		}
	})
}
