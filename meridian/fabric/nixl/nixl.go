// Package nixl is the fabric on NVIDIA's NIXL: each machine has an agent with a pool of registered memory, and agents
// read values from each other's pools. There is no store: a daemon pushes to its agent's pool, and pulls from
// there or from the pool of a peer that has the value.
//
// NIXL's library runs in the agent, a separate process (package agent), so that neither a crash of the library nor a
// call that does not return reaches a request. This package speaks to the agent over a Unix socket and needs no
// library.
//
// NIXL checks neither who reads nor who writes registered memory. So values are sealed with the namespace key before
// they reach the agent (package seal), as for Mooncake Store. Bytes that were overwritten, or read while the pool gave
// their room to another value, are corrupt and never another prompt's cells.
package nixl

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

// Label is the fabric's name in metrics.
const Label = "nixl"

// Fabric is a client of the agent on this machine. It connects for each operation.
type Fabric struct {
	config Config
	ctx    context.Context // ended by Close
	stop   context.CancelFunc
	once   sync.Once
}

// Open is New(ParseURL(url)).
func Open(url string) (*Fabric, error) {
	c, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	if c.Socket == "" {
		return nil, errors.New("option socket is missing: uma-serve starts an agent, and sets it, for the option " +
			"--fabric of all models; another fabric for one model needs it in its URL")
	}
	return New(c), nil
}

// New makes a fabric. It does not connect.
func New(c Config) *Fabric {
	f := &Fabric{config: c}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// Label returns "nixl".
func (f *Fabric) Label() string { return Label }

// TTL returns 0: the pool forgets what it needs room for.
func (f *Fabric) TTL() time.Duration { return 0 }

// Push seals a value and puts it into the agent's pool, unless that has the same one.
func (f *Fabric) Push(ctx context.Context, key string, value []byte) error {
	if int64(len(value)) > f.config.MaxBytes {
		return fmt.Errorf("%s: push: %w: %d bytes, the limit (option max) is %d", Label, fault.ErrTooLarge, len(value),
			f.config.MaxBytes)
	}
	return f.do(ctx, "push", key, func(c net.Conn, name string, r Request) error {
		r.Op, r.Size, r.Header = OpPush, int64(len(value)+seal.Overhead), f.config.Key.Header(name, value)
		s, _, err := ask(c, r)
		if err != nil || s == StatusKnown {
			return err
		}
		if s != StatusSend {
			return fmt.Errorf("%w: the agent answers status %d to a push", fault.ErrUnavailable, s)
		}
		if _, err := c.Write(f.config.Key.Seal(name, r.Header, value)); err != nil {
			return fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
		}
		_, _, err = readAnswer(c)
		return err
	})
}

// Pull gets a value from the agent, which has it or reads it from a peer, and opens its seal.
func (f *Fabric) Pull(ctx context.Context, key string, dst []byte) (value []byte, err error) {
	err = f.do(ctx, "pull", key, func(c net.Conn, name string, r Request) error {
		r.Op = OpGet
		_, n, err := ask(c, r)
		switch {
		case err != nil:
			return err
		case n < seal.Overhead:
			return fmt.Errorf("%w: %d bytes, a seal alone takes %d", fault.ErrCorrupt, n, seal.Overhead)
		case n-seal.Overhead > f.config.MaxBytes:
			return fmt.Errorf("%w: %d bytes, the limit (option max) is %d", fault.ErrTooLarge, n-seal.Overhead,
				f.config.MaxBytes)
		}
		dst = fault.Room(dst, int(n))
		if _, err := io.ReadFull(c, dst); err != nil {
			return fmt.Errorf("%w: the agent ended the connection: %w", fault.ErrUnavailable, err)
		}
		value, err = f.config.Key.Open(name, dst)
		return err
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Renew has the pool forget a value later.
func (f *Fabric) Renew(ctx context.Context, key string) error {
	return f.do(ctx, "renew", key, func(c net.Conn, _ string, r Request) error {
		r.Op = OpRenew
		_, _, err := ask(c, r)
		return err
	})
}

// Delete removes a value from this agent's pool and those of its peers.
func (f *Fabric) Delete(ctx context.Context, key string) error {
	return f.do(ctx, "delete", key, func(c net.Conn, _ string, r Request) error {
		r.Op = OpDelete
		_, _, err := ask(c, r)
		return err
	})
}

// Close ends running operations.
func (f *Fabric) Close() error {
	f.once.Do(f.stop)
	return nil
}

func ask(c net.Conn, r Request) (Status, int64, error) {
	if _, err := c.Write(r.Append(nil)); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	return readAnswer(c)
}

// do runs one operation on a connection, which ends with ctx, with Close or after stall without progress.
func (f *Fabric) do(ctx context.Context, verb, key string, op func(net.Conn, string, Request) error) error {
	err := fault.Begin(ctx, key)
	if err == nil {
		err = f.connect(ctx, func(c net.Conn) error {
			name := f.config.Key.Name(key)
			var r Request
			if _, err := hex.Decode(r.Name[:], []byte(name)); err != nil {
				return fmt.Errorf("%w: %w", fault.ErrKey, err)
			}
			return op(c, name, r)
		})
	}
	if err == nil {
		return nil
	}
	if f.ctx.Err() != nil {
		err = fmt.Errorf("%w: closed", fault.ErrUnavailable)
	}
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("%s: %s: %w", Label, verb, err)
}

func (f *Fabric) connect(ctx context.Context, op func(net.Conn) error) error {
	if f.ctx.Err() != nil {
		return fmt.Errorf("%w: closed", fault.ErrUnavailable)
	}
	c, err := (&net.Dialer{Timeout: stall}).DialContext(ctx, "unix", f.config.Socket)
	if err != nil {
		return fmt.Errorf("%w: no agent: %w", fault.ErrUnavailable, err)
	}
	defer c.Close()
	for _, ended := range []context.Context{f.ctx, ctx} {
		defer context.AfterFunc(ended, func() { c.Close() })()
	}
	return op(steady{c})
}

// steady is a connection that fails after stall without progress.
type steady struct{ net.Conn }

func (s steady) Read(b []byte) (int, error) {
	if err := s.SetReadDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return s.Conn.Read(b)
}

func (s steady) Write(b []byte) (n int, err error) {
	const most = 1 << 20 // bytes between two deadlines
	for n < len(b) && err == nil {
		if err = s.SetWriteDeadline(time.Now().Add(stall)); err != nil {
			break
		}
		var wrote int
		wrote, err = s.Conn.Write(b[n:min(n+most, len(b))])
		n += wrote
	}
	return n, err
}
