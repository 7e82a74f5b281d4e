// Package valkey is the fabric on a Valkey or Redis server or cluster: what makes several machines share prefixes.
//
// A value is cut into pieces, each under a name that holds the value's hash, and a manifest under the value's key
// says which pieces belong together. The manifest is written last, in one command. So a reader sees the old value
// or the new one, never a mixture; a writer that dies leaves pieces that nobody refers to and that expire; and
// two machines that push the same value write the same names: the second finds it there and sends nothing.
//
// Pieces keep a single command from holding up a server that does one thing at a time, and let a value be larger than
// the 512 MiB a string may have. They travel in windows of [windowBytes], pipelined: out of the caller's memory and
// into it, without a copy on the way. What an operation holds beside the value is a socket buffer.
//
// Each operation has a connection to itself, and no goroutine beside the caller's: when Push returns, also by its
// deadline, nothing reads the value any more.
package valkey

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	vk "github.com/valkey-io/valkey-go"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

const (
	// Label is the fabric's name in metrics.
	Label = "valkey"
	// windowBytes is how much is under way at a time: several pieces to hide the round trip, few enough that the
	// server's reply buffer and the time until a cancelled operation ends stay small.
	windowBytes = 8 << 20
	// windowTimeout ends a window that makes no headway when the caller set no deadline.
	windowTimeout = 10 * time.Second
	// chunkGrace is how much longer than its manifest a piece lives: it was written earlier.
	chunkGrace = 10 * time.Minute
	// replaced is how often a pull starts again because the value was replaced under it.
	replaced = 3
)

// Fabric is a client. It connects when first used, and again after a connection broke.
type Fabric struct {
	config Config

	mu      sync.Mutex
	closed  bool
	client  vk.Client
	dialing *dialing
	conns   map[*conn]struct{} // open ones, so that Close can end what they do
}

type dialing struct {
	done chan struct{}
	err  error // valid when done is closed
}

// Open is New(ParseURL(url)).
func Open(url string) (*Fabric, error) {
	c, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// New makes a fabric. Nothing is connected yet.
func New(c Config) *Fabric { return &Fabric{config: c, conns: map[*conn]struct{}{}} }

// Label is "valkey", for Redis too: it is the same protocol.
func (f *Fabric) Label() string { return Label }

// Push stores a value in pieces, then its manifest.
func (f *Fabric) Push(ctx context.Context, key string, value []byte) error {
	if int64(len(value)) > f.config.MaxBytes {
		return fmt.Errorf("%s: push: %w: %d bytes, the limit (option max) is %d", Label, fault.ErrTooLarge, len(value), f.config.MaxBytes)
	}
	m := manifestOf(value, f.config.ChunkBytes)
	return f.do(ctx, "push", key, func(c vk.Client, k keys) error {
		old, err := f.manifest(ctx, c, k)
		known := err == nil
		if err != nil && !errors.Is(err, fault.ErrNotFound) && !errors.Is(err, fault.ErrCorrupt) && !errors.Is(err, fault.ErrTooLarge) {
			return err
		}
		if known && old == m {
			if renewed, err := f.renew(ctx, c, k, &m); err != nil || renewed {
				return err
			}
		}
		if err := f.write(ctx, c, k, &m, value); err != nil {
			return err
		}
		if known && old != m && old.bytes > 0 {
			// The value is stored; what it replaced expires at the latest.
			_ = c.Do(ctx, c.B().Unlink().Key(k.chunks(&old)...).Build()).Error()
		}
		return nil
	})
}

func (f *Fabric) write(ctx context.Context, c vk.Client, k keys, m *manifest, value []byte) error {
	n := m.chunks()
	window := max(windowBytes/m.chunk, 1)
	for i := 0; i < n; i += window {
		if err := ctx.Err(); err != nil {
			return err
		}
		commands := make([]vk.Completed, 0, window)
		for j := i; j < min(i+window, n); j++ {
			commands = append(commands, f.set(c, k.chunk(m, j), m.piece(value, j), chunkGrace))
		}
		for _, r := range c.DoMulti(ctx, commands...) {
			if err := r.Error(); err != nil {
				return err
			}
		}
	}
	return c.Do(ctx, f.set(c, k.manifest(), m.encode(), 0)).Error()
}

// set is the command that stores b. It refers to b's memory: that is safe as a client without automatic pipelining
// runs a command on the caller's goroutine.
func (f *Fabric) set(c vk.Client, name string, b []byte, grace time.Duration) vk.Completed {
	s := c.B().Set().Key(name).Value(vk.BinaryString(b))
	if f.config.TTL > 0 {
		return s.PxMilliseconds((f.config.TTL + grace).Milliseconds()).Build()
	}
	return s.Build()
}

// renew extends the life of a value that is there already and reports whether all of it is.
func (f *Fabric) renew(ctx context.Context, c vk.Client, k keys, m *manifest) (bool, error) {
	if f.config.TTL == 0 {
		n, err := c.Do(ctx, c.B().Exists().Key(append(k.chunks(m), k.manifest())...).Build()).AsInt64()
		return n == int64(m.chunks())+1, err
	}
	var commands []vk.Completed
	for _, name := range k.chunks(m) {
		commands = append(commands, c.B().Pexpire().Key(name).Milliseconds((f.config.TTL + chunkGrace).Milliseconds()).Build())
	}
	commands = append(commands, c.B().Pexpire().Key(k.manifest()).Milliseconds(f.config.TTL.Milliseconds()).Build())
	all := true
	for _, r := range c.DoMulti(ctx, commands...) {
		n, err := r.AsInt64()
		if err != nil {
			return false, err
		}
		all = all && n == 1
	}
	return all, nil
}

// Pull reads the manifest, then the pieces straight into the result.
func (f *Fabric) Pull(ctx context.Context, key string, dst []byte) (value []byte, err error) {
	err = f.do(ctx, "pull", key, func(c vk.Client, k keys) error {
		var last manifest
		for range replaced {
			m, err := f.manifest(ctx, c, k)
			if err != nil {
				return err
			}
			if m == last {
				break
			}
			value = fault.Room(dst, int(m.bytes))
			if err := f.read(ctx, c, k, &m, value); !errors.Is(err, fault.ErrNotFound) {
				return err
			}
			last = m // a piece is gone: another value took its place, or the server evicted it
		}
		return fmt.Errorf("%w: not all of its pieces are there", fault.ErrNotFound)
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

func (f *Fabric) read(ctx context.Context, c vk.Client, k keys, m *manifest, value []byte) error {
	n := m.chunks()
	window := max(windowBytes/m.chunk, 1)
	for i := 0; i < n; i += window {
		if err := ctx.Err(); err != nil {
			return err
		}
		names := make([]string, 0, window)
		pieces := make([][]byte, 0, window)
		for j := i; j < min(i+window, n); j++ {
			names = append(names, k.chunk(m, j))
			pieces = append(pieces, m.piece(value, j))
		}
		if err := get(ctx, c, names, pieces); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fabric) manifest(ctx context.Context, c vk.Client, k keys) (manifest, error) {
	var b [manifestBytes]byte
	if err := get(ctx, c, []string{k.manifest()}, [][]byte{b[:]}); err != nil {
		return manifest{}, err
	}
	return parseManifest(b[:], f.config.MaxBytes)
}

// get reads values, each of exactly the length of its place. However long one claims to be, nothing is written beyond that.
func get(ctx context.Context, c vk.Client, names []string, places [][]byte) error {
	commands := make([]vk.Completed, len(names))
	for i, name := range names {
		commands[i] = c.B().Get().Key(name).Build()
	}
	err := stream(ctx, c, commands, places)
	if err == nil || c.Mode() != vk.ClientModeCluster || ctx.Err() != nil {
		return kind(err)
	}
	moved, asked := false, false
	if reply, ok := vk.IsValkeyErr(err); ok {
		_, moved = reply.IsMoved()
		_, asked = reply.IsAsk()
	}
	if !moved && !asked && !stale(err) && !isDial(err) {
		return kind(err)
	}
	// The cluster has changed. The client follows it, and learns of it, in other commands than streams.
	// One at a time: the library holds the whole of each answer in memory, whatever its length.
	for i, name := range names {
		b, err := c.Do(ctx, c.B().Get().Key(name).Build()).AsBytes()
		if err != nil {
			return kind(err)
		}
		if len(b) != len(places[i]) {
			return wrongLength(len(b), len(places[i]))
		}
		copy(places[i], b)
	}
	return nil
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func wrongLength(got, want int) error {
	return fmt.Errorf("%w: a piece of %d bytes, want %d", fault.ErrCorrupt, got, want)
}

// stream reads the answers of commands straight into their places.
func stream(ctx context.Context, c vk.Client, commands []vk.Completed, places [][]byte) (first error) {
	s := c.DoMultiStream(ctx, commands...)
	answers := 0
	for ; s.HasNext(); answers++ {
		p := place{b: places[answers]}
		// After a first failure the other answers are read all the same: the connection is to be used again.
		_, err := s.WriteTo(&p)
		if err == nil && p.n != len(p.b) {
			err = wrongLength(p.n, len(p.b))
		}
		if first == nil {
			first = err
		}
	}
	if first == nil && answers < len(places) {
		// Not "!= io.EOF": that also says that all answers were read, and is what a broken connection may give.
		first = fmt.Errorf("%w after %d of %d answers", s.Error(), answers, len(places))
	}
	return first
}

// place is where one answer goes.
type place struct {
	b []byte
	n int
}

var errTooLong = fmt.Errorf("%w: a piece is longer than its place", fault.ErrCorrupt)

// ReadFrom reads into the place itself; io.Copy prefers it to a buffer of its own.
func (p *place) ReadFrom(r io.Reader) (int64, error) {
	for p.n < len(p.b) {
		n, err := r.Read(p.b[p.n:])
		p.n += n
		if err == io.EOF {
			return int64(p.n), nil
		}
		if err != nil {
			return int64(p.n), err
		}
	}
	var more [1]byte
	if n, _ := io.ReadFull(r, more[:]); n > 0 {
		return int64(p.n + n), errTooLong
	}
	return int64(p.n), nil
}

// Write takes the short answers that are not bulk strings.
func (p *place) Write(b []byte) (int, error) {
	n := copy(p.b[p.n:], b)
	p.n += n
	if n < len(b) {
		return n, errTooLong
	}
	return n, nil
}

// Delete removes the manifest, then the pieces.
func (f *Fabric) Delete(ctx context.Context, key string) error {
	return f.do(ctx, "delete", key, func(c vk.Client, k keys) error {
		m, err := f.manifest(ctx, c, k)
		if errors.Is(err, fault.ErrNotFound) {
			return nil
		}
		whole := err == nil
		if err != nil && !errors.Is(err, fault.ErrCorrupt) && !errors.Is(err, fault.ErrTooLarge) {
			return err
		}
		if err := c.Do(ctx, c.B().Unlink().Key(k.manifest()).Build()).Error(); err != nil || !whole || m.bytes == 0 {
			return err
		}
		return c.Do(ctx, c.B().Unlink().Key(k.chunks(&m)...).Build()).Error()
	})
}

// do runs one operation, again where a connection turns out to have been dead since its last use: every operation
// can be repeated. It turns errors into those of package fabric.
func (f *Fabric) do(ctx context.Context, verb, key string, op func(vk.Client, keys) error) error {
	err := fault.Begin(ctx, key)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", Label, verb, err)
	}
	for range f.config.Conns + 1 {
		var c vk.Client
		if c, err = f.connect(ctx); err != nil {
			break
		}
		if err = guarded(func() error { return op(c, f.keys(key)) }); err == nil {
			return nil
		}
		if errors.Is(err, errPanic) {
			f.drop(c)
			break
		}
		if !stale(err) || ctx.Err() != nil || f.isClosed() {
			break
		}
	}
	return fmt.Errorf("%s: %s: %w", Label, verb, kind(err))
}

// errPanic: the client library failed in a way that it does not know of. What it holds is not used again.
var errPanic = fmt.Errorf("%w: the client library panicked", fault.ErrUnavailable)

// guarded runs f; a panic becomes an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return f()
}

// drop forgets a client. It may hold a lock for good, so nothing waits for its end.
func (f *Fabric) drop(c vk.Client) {
	f.mu.Lock()
	if f.client == c {
		f.client = nil
	}
	f.mu.Unlock()
	go func() { _ = guarded(func() error { c.Close(); return nil }) }()
}

// stale: the other side had closed the connection.
func stale(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// kind makes an error of the client or the server one of package fabric's.
func kind(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range []error{fault.ErrNotFound, fault.ErrUnavailable, fault.ErrCorrupt, fault.ErrTooLarge} {
		if errors.Is(err, e) {
			return err
		}
	}
	if vk.IsValkeyNil(err) {
		return fault.ErrNotFound
	}
	if reply, ok := vk.IsValkeyErr(err); ok {
		if strings.HasPrefix(reply.Error(), "WRONGTYPE") {
			return fmt.Errorf("%w: %w", fault.ErrCorrupt, err)
		}
		return fmt.Errorf("%w: the server says %w", fault.ErrUnavailable, err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
}

func (f *Fabric) isClosed() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.closed }

// connect is the client, made by the first who needs one. Making it does not know a context, so it happens beside.
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
	if c != nil { // of no use: the login failed, or the fabric was closed meanwhile
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
		// KeepAlive is also how often an idle connection is pinged; waking up for that every second is not needed.
		Dialer:                net.Dialer{Timeout: f.config.ConnectTimeout, KeepAlive: 30 * time.Second},
		ConnWriteTimeout:      windowTimeout,
		BlockingPoolSize:      f.config.Conns,
		BlockingPoolCleanup:   time.Minute,
		DisableAutoPipelining: true, // one operation to a connection, on the caller's goroutine: see the package comment
		PipelineMultiplex:     -1,
		ReadBufferEachConn:    64 << 10,
		WriteBufferEachConn:   64 << 10,
		DisableCache:          true, // its client-side cache of values, which would hold them a second time
		DisableRetry:          true, // do knows better what may be repeated
		ForceSingleClient:     f.config.DB != 0,
		ClusterOption:         vk.ClusterOption{MaxMovedRedirections: 8},
	})
}

// Close ends operations under way and closes every connection.
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
		c.Close() // after its connections: it would wait for a server that is silent
	}
	return nil
}
