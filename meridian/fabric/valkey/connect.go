package valkey

import (
	"context"
	"fmt"
	"net"
	"time"

	vk "github.com/valkey-io/valkey-go"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

func (f *Fabric) isClosed() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.closed }

// connect returns the client; the first caller makes it, on a goroutine, because the library's dial takes no context.
func (f *Fabric) connect(ctx context.Context) (vk.Client, error) {
	f.mu.Lock()
	if f.closed || f.client != nil {
		defer f.mu.Unlock()
		if f.closed {
			return nil, fmt.Errorf("%w: closed", fault.ErrUnavailable)
		}
		return f.client, nil
	}
	d := f.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		f.dialing = d
		go f.dial(d)
	}
	f.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: connecting: %w", fault.ErrUnavailable, ctx.Err())
	case <-d.done:
	}
	if d.err != nil {
		return nil, fmt.Errorf("connecting: %w", d.err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.client == nil {
		return nil, fmt.Errorf("%w: closed", fault.ErrUnavailable)
	}
	return f.client, nil
}

func (f *Fabric) dial(d *dialing) {
	var c vk.Client
	err := guarded(func() (err error) {
		c, err = f.newClient()
		return err
	})
	f.mu.Lock()
	f.dialing, d.err = nil, err
	if err == nil && !f.closed {
		f.client, c = c, nil
	}
	f.mu.Unlock()
	if c != nil { // the login failed, or the fabric was closed meanwhile
		go func() { _ = guarded(func() error { c.Close(); return nil }) }()
	}
	close(d.done)
}

func (f *Fabric) newClient() (vk.Client, error) {
	return vk.NewClient(vk.ClientOption{
		InitAddress: f.config.Addresses,
		Username:    f.config.Username,
		Password:    f.config.Password,
		SelectDB:    f.config.DB,
		TLSConfig:   f.config.TLS,
		ClientName:  "uma-serve",
		DialCtxFn:   f.dialConn,
		// KeepAlive is also the interval of pings on idle connections; the default of one second is too short.
		Dialer:                net.Dialer{Timeout: f.config.ConnectTimeout, KeepAlive: 30 * time.Second},
		ConnWriteTimeout:      windowTimeout,
		BlockingPoolSize:      f.config.Conns,
		BlockingPoolCleanup:   time.Minute,
		DisableAutoPipelining: true, // one operation per connection, on the caller's goroutine: see the package comment
		PipelineMultiplex:     -1,
		ReadBufferEachConn:    64 << 10,
		WriteBufferEachConn:   64 << 10,
		DisableCache:          true, // a client-side cache would hold the values a second time
		DisableRetry:          true, // do repeats operations
		ForceSingleClient:     f.config.DB != 0,
		ClusterOption:         vk.ClusterOption{MaxMovedRedirections: 8},
	})
}

// Close ends running operations and closes every connection.
func (f *Fabric) Close() error {
	f.mu.Lock()
	c := f.client
	f.closed, f.client = true, nil
	open := make([]*conn, 0, len(f.conns))
	for k := range f.conns {
		open = append(open, k)
	}
	f.mu.Unlock()
	for _, k := range open {
		k.Close()
	}
	if c != nil {
		c.Close() // after its connections: otherwise it would wait for a silent server
	}
	return nil
}
