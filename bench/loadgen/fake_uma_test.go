package loadgen

import (
	"context"
	"net"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// pipes connects clients with a server of the same process, so that a bubble's clock stands still while bytes move.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.ended) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

// fakeUMA answers frames on every connection.
func fakeUMA(ln net.Listener, play func(token func(thinking bool, n int))) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go serveUMA(c, play)
	}
}

func serveUMA(c net.Conn, play func(token func(thinking bool, n int))) {
	defer c.Close()
	split, buf := split.Frames{Max: 1 << 20}, make([]byte, 64<<10)
	var p wire.Parser
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		for in := buf[:n]; len(in) > 0; {
			payload, rest, err := split.Next(in)
			if err != nil {
				return
			}
			if in = rest; payload == nil {
				continue
			}
			f, err := wire.Parse(&p, payload, &defaults)
			if err != nil {
				return
			}
			if strings.HasPrefix(f.Request.Prompt, "refuse") {
				c.Write(wire.AppendError(nil, &wire.Error{ID: f.ID, Code: wire.QueueLimit, Message: "full"}))
				continue
			}
			play(func(thinking bool, n int) {
				tok := wire.Token{ID: f.ID, Text: []byte("w "), TokenID: int32(n), Phase: wire.Output}
				if thinking {
					tok.Phase = wire.Thinking
				}
				c.Write(wire.AppendToken(nil, &tok))
			})
			c.Write(wire.AppendEOS(nil, &wire.EOS{ID: f.ID, Reason: wire.Stop, Streamed: true,
				Thought: wire.ThinkSummary{Tokens: thinks, Ended: "hard_cap"},
				Usage: wire.Usage{PromptTokens: 9, CachedTokens: 3, CompletionTokens: thinks + speaks,
					ThinkTokens: thinks}}))
		}
	}
}
