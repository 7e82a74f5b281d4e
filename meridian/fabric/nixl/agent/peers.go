package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

const (
	// minPause and maxPause bound the time for which a peer that failed is not asked.
	minPause = time.Second
	maxPause = 16 * time.Second
)

// errSelf: the peer's address is this agent's.
var errSelf = errors.New("the peer is this agent")

// peer is another agent, as its client sees it.
type peer struct {
	a       *agent
	address string

	mu      sync.Mutex // one question at a time
	session *session   // nil: not connected
	pause   time.Duration
	until   time.Time // it is not asked before
	self    bool
	closed  bool
}

// session is a connection to a peer, with what NIXL knows of it.
type session struct {
	c    net.Conn
	name string // of the peer, to NIXL

	mu   sync.Mutex
	uses int // the connection and running transfers. NIXL forgets the peer when none is left.
}

// lease is a value that a peer keeps where it is.
type lease struct {
	s       *session
	id      uint64
	address uint64
	size    int64
}

func newPeer(a *agent, address string) *peer { return &peer{a: a, address: address, pause: minPause} }

func (s *session) use() { s.mu.Lock(); s.uses++; s.mu.Unlock() }

// leave ends a use. NIXL must not forget a peer while it reads from there.
func (s *session) leave(t transport) {
	s.mu.Lock()
	s.uses--
	last := s.uses == 0
	s.mu.Unlock()
	if last {
		t.Forget(s.name)
	}
}

// ask sends a request and reads an answer of len(answer) bytes. force: a peer that failed lately is asked too.
func (p *peer) ask(op byte, name [32]byte, id uint64, answer []byte, force bool) (*session, error) {
	end := p.a.clock().Add(askLimit)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.a.clock()
	switch {
	case p.closed:
		return nil, net.ErrClosed
	case p.self:
		return nil, errSelf
	case p.session == nil && now.Before(p.until) && !force:
		return nil, fmt.Errorf("peer %s failed lately", p.address)
	case now.After(end):
		return nil, os.ErrDeadlineExceeded
	}
	fresh := p.session == nil
	if fresh {
		if err := p.connect(end); err != nil {
			return nil, p.failed(err)
		}
	}
	err := p.exchange(end, op, name, id, answer)
	if err != nil && !fresh {
		// A peer that was started again has closed the old connection.
		p.disconnect()
		if err = p.connect(end); err == nil {
			err = p.exchange(end, op, name, id, answer)
		}
	}
	if err != nil {
		return nil, p.failed(err)
	}
	p.pause = minPause
	return p.session, nil
}

// failed notes a failure. The lock is held.
func (p *peer) failed(err error) error {
	p.disconnect()
	if errors.Is(err, errSelf) {
		p.self = true
		return err
	}
	p.until = p.a.clock().Add(p.pause)
	p.pause = min(2*p.pause, maxPause)
	p.a.log.Debug("a peer failed", "peer", p.address, "error", err)
	return fmt.Errorf("peer %s: %w", p.address, err)
}

func (p *peer) disconnect() {
	if s := p.session; s != nil {
		p.session = nil
		s.c.Close()
		s.leave(p.a.t)
	}
}

func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.disconnect()
}

// connect makes a session: TLS, then the peer's metadata. The lock is held.
func (p *peer) connect(end time.Time) error {
	config, err := identity(p.a.config.Key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.address)
	if err != nil {
		return err
	}
	c := tls.Client(raw, config)
	metadata, err := func() ([]byte, error) {
		if err := c.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		if err := c.SetDeadline(end); err != nil {
			return nil, err
		}
		if err := send(c, opHello, [32]byte{}, 0); err != nil {
			return nil, err
		}
		var n [4]byte
		if _, err := io.ReadFull(c, n[:]); err != nil {
			return nil, err
		}
		size := binary.LittleEndian.Uint32(n[:])
		if size == 0 || size > maxMetadata {
			return nil, fmt.Errorf("its metadata is %d bytes long, want 1 to %d", size, maxMetadata)
		}
		b := make([]byte, size)
		_, err := io.ReadFull(c, b)
		return b, err
	}()
	if err != nil {
		raw.Close()
		return err
	}
	if bytes.Equal(metadata, p.a.t.Metadata()) {
		raw.Close()
		return errSelf
	}
	name, err := p.a.t.Load(metadata)
	if err != nil {
		raw.Close()
		return err
	}
	p.session = &session{c: c, name: name, uses: 1}
	return nil
}

// exchange sends a request on the session and reads the answer. The lock is held.
func (p *peer) exchange(end time.Time, op byte, name [32]byte, id uint64, answer []byte) error {
	if err := p.session.c.SetDeadline(end); err != nil {
		return err
	}
	if err := send(p.session.c, op, name, id); err != nil {
		return err
	}
	_, err := io.ReadFull(p.session.c, answer)
	return err
}

func send(c net.Conn, op byte, name [32]byte, id uint64) error {
	b := append(append(make([]byte, 0, requestBytes), op), name[:]...)
	_, err := c.Write(binary.LittleEndian.AppendUint64(b, id))
	return err
}

// grant asks for a lease of a value; nil without an error: the peer does not have it.
func (p *peer) grant(name [32]byte) (*lease, error) {
	var b [grantBytes]byte
	s, err := p.ask(opGet, name, 0, b[:], false)
	if err != nil || b[0] != peerYes {
		return nil, err
	}
	return &lease{s: s, id: binary.LittleEndian.Uint64(b[1:]), address: binary.LittleEndian.Uint64(b[9:]),
		size: int64(binary.LittleEndian.Uint64(b[17:]))}, nil
}

// end ends a lease, unless its connection has ended, and the lease with it.
func (p *peer) end(l *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == l.s {
		if err := p.exchange(p.a.clock().Add(askLimit), opEnd, [32]byte{}, l.id, nil); err != nil {
			p.disconnect()
		}
	}
}

// find asks all peers at once for a value, and returns the first lease. The others end.
func (a *agent) find(name [32]byte) (*peer, *lease, error) {
	type found struct {
		p *peer
		l *lease
	}
	answers := make(chan found, len(a.peers))
	for _, p := range a.peers {
		go func() {
			l, err := p.grant(name)
			if err != nil {
				l = nil // a peer that fails has nothing to give
			}
			answers <- found{p, l}
		}()
	}
	for i := range a.peers {
		first := <-answers
		if first.l == nil {
			continue
		}
		go func() { // without waiting for slow peers
			for range len(a.peers) - 1 - i {
				if late := <-answers; late.l != nil {
					late.p.end(late.l)
				}
			}
		}()
		return first.p, first.l, nil
	}
	return nil, nil, errNotFound
}

// fromPeers reads a value from a peer into room of the pool, which has no name. The caller unpins it.
func (a *agent) fromPeers(name [32]byte) (*value, error) {
	p, l, err := a.find(name)
	if err != nil {
		return nil, err
	}
	defer p.end(l)
	if l.size < seal.Overhead || l.size-seal.Overhead > a.config.MaxBytes {
		a.log.Warn("a peer has a value outside of the limits", "peer", p.address, "bytes", l.size, "limit",
			a.config.MaxBytes)
		return nil, errTooLarge
	}
	if l.address > math.MaxUint64-uint64(l.size) {
		return nil, fmt.Errorf("peer %s has %d bytes at address %#x", p.address, l.size, l.address)
	}
	v, err := a.pool.take(l.size)
	if err != nil {
		return nil, err
	}
	l.s.use()
	for done := int64(0); done < l.size; done += chunk {
		stuck, err := a.t.Read(l.s.name, l.address+uint64(done), v.room.at+done, min(chunk, l.size-done),
			a.clock().Add(readLimit))
		if err == nil {
			continue
		}
		// The session goes before the transfer's use of it, so that NIXL forgets the peer.
		p.mu.Lock()
		if p.session == l.s {
			_ = p.failed(err)
		}
		p.mu.Unlock()
		l.s.leave(a.t)
		if stuck {
			if lost := a.pool.lose(v); lost > a.pool.size/2 {
				a.log.Error("transfers that do not end hold half of the pool; the agent ends", "bytes", lost)
				os.Exit(exitStuck)
			}
		} else {
			a.pool.unpin(v)
		}
		return nil, fmt.Errorf("peer %s: %w", p.address, err)
	}
	l.s.leave(a.t)
	return v, nil
}

// deletePeers removes a value from every peer. A peer whose machine refuses the connection has no agent, and so no
// values.
func (a *agent) deletePeers(name [32]byte) error {
	errs := make(chan error, len(a.peers))
	for _, p := range a.peers {
		go func() {
			var b [1]byte
			_, err := p.ask(opDelete, name, 0, b[:], true)
			if errors.Is(err, errSelf) || errors.Is(err, syscall.ECONNREFUSED) {
				err = nil
			}
			errs <- err
		}()
	}
	var all []error
	for range a.peers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
