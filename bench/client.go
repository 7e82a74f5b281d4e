package bench

import (
	"fmt"
	"net"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// conn is a client connection with one read buffer, as a small program would have.
type conn struct {
	net.Conn
	split split.Frames
	buf   []byte
	rest  []byte // received, not yet split
	out   []byte
	p     frames.Parser
	ev    wire.Event
}

// defaults are the values of omitted fields: only fields that differ are sent.
var defaults = wire.DefaultRequest()

func dial(socket string) (*conn, error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the daemon: %w", err)
	}
	return &conn{Conn: c, buf: make([]byte, 16<<10), split: split.Frames{Max: wire.MaxEventBytes}}, nil
}

func (c *conn) send(r *wire.Request) error {
	c.out = frames.AppendRequest(c.out[:0], r, &defaults)
	_, err := c.Write(c.out)
	return err
}

// next returns the next event, valid until the next call.
func (c *conn) next() (*wire.Event, error) {
	for {
		for len(c.rest) > 0 {
			payload, rest, err := c.split.Next(c.rest)
			if err != nil {
				return nil, err
			}
			c.rest = rest
			if payload != nil {
				return &c.ev, c.p.ParseEvent(payload, &c.ev)
			}
		}
		n, err := c.Read(c.buf)
		if err != nil {
			return nil, fmt.Errorf("read from the daemon: %w", err)
		}
		c.rest = c.buf[:n]
	}
}
