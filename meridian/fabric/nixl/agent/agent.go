// Package agent is the process beside a daemon that holds NIXL: a pool of registered memory, the daemon's Unix socket,
// and connections with the agents of other machines (peers.go).
//
// An agent serves values in two ways. Its daemon pushes and pulls over the Unix socket. A peer asks over TCP which
// value has a name, gets its address under a lease, and reads it by NIXL without the agent's help; the lease keeps the
// room from being given to another value.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
	"github.com/uma-serve/uma-serve/meridian/fabric/nixl"
)

const (
	// callLimit bounds a call into the library. Longer ones end the process.
	callLimit = 1200 * time.Millisecond
	// askLimit bounds a question to all peers, and readLimit the time without progress of a transfer.
	askLimit  = 700 * time.Millisecond
	readLimit = 900 * time.Millisecond
	// idleLimit bounds the wait for the next bytes of the daemon within an operation.
	idleLimit = 2 * time.Second
	// chunk is the largest transfer, in bytes.
	chunk = 8 << 20
	// maxMetadata bounds the description of an agent, in bytes.
	maxMetadata = 64 << 10
	// maxClients bounds the daemon's connections.
	maxClients = 256
	// exitStuck is the status of an agent that ended because a call into the library did not return.
	exitStuck = 3
)

// agent serves one pool.
type agent struct {
	config nixl.Config
	log    *slog.Logger
	t      transport
	pool   *pool
	peers  []*peer
	clock  func() time.Time
}

// Run is the agent's process: it serves until ctx ends. ready is called once it listens.
func Run(ctx context.Context, c nixl.Config, log *slog.Logger, ready func()) error {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it does not fail
	t, err := openLibrary(c.Library, "uma-"+hex.EncodeToString(random[:]), c.PoolBytes)
	if err != nil {
		return err
	}
	return newAgent(c, t, log).run(ctx, ready)
}

func newAgent(c nixl.Config, t transport, log *slog.Logger) *agent {
	a := &agent{config: c, log: log, t: t, pool: newPool(int64(len(t.Pool()))), clock: time.Now}
	for _, address := range c.Peers {
		a.peers = append(a.peers, newPeer(a, address))
	}
	return a
}

// run serves the Unix socket and the peers.
func (a *agent) run(ctx context.Context, ready func()) error {
	outer, err := net.Listen("tcp", a.config.Listen)
	if err != nil {
		return fmt.Errorf("listen for peers: %w", err)
	}
	defer outer.Close()
	if c, err := net.Dial("unix", a.config.Socket); err == nil {
		c.Close()
		return fmt.Errorf("another agent listens on %s", a.config.Socket)
	}
	if err := os.Remove(a.config.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace the socket of an earlier agent: %w", err)
	}
	inner, err := net.Listen("unix", a.config.Socket)
	if err != nil {
		return fmt.Errorf("listen for the daemon: %w", err)
	}
	defer inner.Close()
	if err := os.Chmod(a.config.Socket, 0o600); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { outer.Close(); inner.Close() })()
	config, err := identity(a.config.Key)
	if err != nil {
		return err
	}
	ready()
	var all sync.WaitGroup
	all.Go(func() { a.servePeers(ctx, outer, config) })
	err = serve(ctx, inner, maxClients, a.serveClient)
	outer.Close()
	all.Wait()
	for _, p := range a.peers {
		p.close()
	}
	a.t.Close()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// serve runs handle for each connection, at most most at a time, until the listener ends.
func serve(ctx context.Context, l net.Listener, most int, handle func(net.Conn)) error {
	room := make(chan struct{}, most)
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		select {
		case room <- struct{}{}:
		default:
			c.Close() // too many
			continue
		}
		all.Go(func() {
			defer func() { <-room }()
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			handle(c)
		})
	}
}

// serveClient serves one operation of the daemon.
func (a *agent) serveClient(c net.Conn) {
	late := func() { _ = c.SetDeadline(time.Now().Add(idleLimit)) } // an error is the next operation's
	late()
	r, err := nixl.ReadRequest(c)
	if err != nil {
		return
	}
	switch r.Op {
	case nixl.OpPush:
		err = a.push(c, r, late)
	case nixl.OpGet:
		err = a.get(c, r, late)
	case nixl.OpRenew:
		err = a.renew(r.Name)
		if err == nil {
			_, err = c.Write(nixl.AppendAnswer(nil, nixl.StatusOK, 0))
		}
	case nixl.OpDelete:
		a.pool.remove(r.Name)
		if err = a.deletePeers(r.Name); err == nil {
			_, err = c.Write(nixl.AppendAnswer(nil, nixl.StatusOK, 0))
		}
	default:
		err = fmt.Errorf("operation %d is unknown", r.Op)
	}
	var s answer
	switch {
	case err == nil:
	case errors.As(err, &s):
		_, _ = c.Write(nixl.AppendAnswer(nil, nixl.Status(s), 0))
	default:
		text := err.Error()
		text = text[:min(len(text), 1000)]
		_, _ = c.Write(append(nixl.AppendAnswer(nil, nixl.StatusFailed, int64(len(text))), text...))
	}
}

// answer is an answer without text as an error.
type answer nixl.Status

func (a answer) Error() string { return fmt.Sprintf("status %d", byte(a)) }

const (
	errNotFound = answer(nixl.StatusNotFound)
	errTooLarge = answer(nixl.StatusTooLarge)
)

// push reads a value from the daemon into the pool.
func (a *agent) push(c net.Conn, r nixl.Request, late func()) error {
	if r.Size < seal.Overhead || r.Size-seal.Overhead > a.config.MaxBytes {
		return errTooLarge
	}
	if v := a.pool.get(r.Name); v != nil {
		known := v.header == r.Header && v.size == r.Size
		a.pool.unpin(v)
		if known {
			return answer(nixl.StatusKnown)
		}
	}
	v, err := a.pool.take(r.Size)
	if err != nil {
		return err
	}
	defer a.pool.unpin(v)
	if _, err := c.Write(nixl.AppendAnswer(nil, nixl.StatusSend, 0)); err != nil {
		return err
	}
	room := a.bytes(v)
	for len(room) > 0 {
		late()
		n, err := c.Read(room)
		if err != nil {
			return err
		}
		room = room[n:]
	}
	v.name = r.Name
	copy(v.header[:], a.bytes(v))
	if v.header != r.Header {
		return errors.New("the value's header is not the one that was announced")
	}
	a.pool.put(v)
	_, err = c.Write(nixl.AppendAnswer(nil, nixl.StatusOK, 0))
	return err
}

// bytes returns a value's bytes in the pool.
func (a *agent) bytes(v *value) []byte { return a.t.Pool()[v.room.at : v.room.at+v.size] }

// get writes a value to the daemon: from the pool, or from a peer's.
func (a *agent) get(c net.Conn, r nixl.Request, late func()) error {
	v := a.pool.get(r.Name)
	if v == nil {
		var err error
		if v, err = a.fromPeers(r.Name); err != nil {
			return err
		}
	}
	defer a.pool.unpin(v)
	late()
	if _, err := c.Write(nixl.AppendAnswer(nil, nixl.StatusOK, v.size)); err != nil {
		return nil // the daemon has gone
	}
	for b := a.bytes(v); len(b) > 0; {
		late()
		n, err := c.Write(b[:min(len(b), 1<<20)])
		if err != nil {
			return nil
		}
		b = b[n:]
	}
	return nil
}

// renew finds out whether a value is anywhere, and marks it as used there.
func (a *agent) renew(name [32]byte) error {
	if v := a.pool.get(name); v != nil {
		a.pool.unpin(v)
		return nil
	}
	p, l, err := a.find(name)
	if err != nil {
		return err
	}
	p.end(l)
	return nil
}
