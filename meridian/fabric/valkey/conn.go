package valkey

import (
	"context"
	"crypto/tls"
	"net"
	"unsafe"
)

// conn is a connection that its fabric can close while an operation waits on it. It passes on only replies to sent
// commands, of the expected size.
type conn struct {
	net.Conn
	fabric   *Fabric
	dialogue *dialogue
}

func (f *Fabric) dialConn(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	var raw net.Conn
	var err error
	if config != nil {
		raw, err = (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", address)
	} else {
		raw, err = d.DialContext(ctx, "tcp", address)
	}
	if err != nil {
		return nil, err
	}
	c := &conn{raw, f, newDialogue()}
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.conns[c] = struct{}{}
	}
	f.mu.Unlock()
	if closed {
		raw.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close also removes the connection from its fabric's list.
func (c *conn) Close() error {
	c.fabric.mu.Lock()
	delete(c.fabric.conns, c)
	c.fabric.mu.Unlock()
	return c.Conn.Close()
}

// Read passes on complete, checked replies. It closes the connection when the server violates the protocol, so that the
// library does not use it again.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		if broken := c.dialogue.in.scan(b[:n]); broken != nil {
			c.Close()
			return 0, broken
		}
	}
	return n, err
}

// Write records the commands in b before the server can answer them.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.dialogue.out.scan(b); err != nil {
		c.Close()
		return 0, err
	}
	return c.Conn.Write(b)
}

// WriteString makes bufio write a piece directly, instead of copying it through its buffer. A net.Conn neither keeps
// nor changes the bytes that it writes.
func (c *conn) WriteString(s string) (int, error) {
	return c.Write(unsafe.Slice(unsafe.StringData(s), len(s)))
}
