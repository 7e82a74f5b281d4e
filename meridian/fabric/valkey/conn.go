package valkey

import (
	"context"
	"crypto/tls"
	"net"
	"unsafe"
)

// conn is a connection that its fabric can close while an operation waits on it, and that lets through only answers to
// what was asked, of a size that was to be expected.
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

// Close takes the connection off its fabric's list.
func (c *conn) Close() error {
	c.fabric.mu.Lock()
	delete(c.fabric.conns, c)
	c.fabric.mu.Unlock()
	return c.Conn.Close()
}

// Read passes on what the checker has seen whole. It closes the connection when the server breaks the protocol, so that
// the library does not use it again.
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

// Write notes the commands in b before the server can answer them.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.dialogue.out.scan(b); err != nil {
		c.Close()
		return 0, err
	}
	return c.Conn.Write(b)
}

// WriteString lets bufio hand a piece to the kernel from where it lies, instead of copying it through its buffer.
// A net.Conn does not keep or change what it is given to write.
func (c *conn) WriteString(s string) (int, error) {
	return c.Write(unsafe.Slice(unsafe.StringData(s), len(s)))
}
