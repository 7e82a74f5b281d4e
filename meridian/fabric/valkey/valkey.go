// Package valkey is the fabric on a Valkey or Redis server or cluster.
//
// A value is cut into pieces, each under a key that contains the value's hash. A manifest under the value's key lists
// the pieces and is written last, in one command. So a reader sees the old value or the new one, never a mixture. A
// writer that dies leaves pieces without a manifest, which expire. Two machines that push the same value use the same
// keys: the second finds the value and sends nothing.
//
// With pieces no single command blocks the single-threaded server for long, and a value can be larger than the 512 MiB
// limit of a string. Pieces are pipelined in windows of [windowBytes], directly from and to the caller's memory.
// Besides the value, an operation needs a socket buffer.
//
// Each operation has its own connection and runs on the caller's goroutine: when Push returns, even at its deadline,
// nothing reads the value any more.
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
	// windowBytes is the amount in transit: several pieces, to hide the round trip, but few enough to keep the server's
	// reply buffer small and cancellation fast.
	windowBytes = 8 << 20
	// windowTimeout ends a window without progress when the caller set no deadline.
	windowTimeout = 10 * time.Second
	// chunkGrace is added to the time to live of a piece, so that it outlives its manifest, which is written later.
	chunkGrace = 10 * time.Minute
	// replaced is the limit on attempts of a pull whose value is replaced during it.
	replaced = 3
)

// Fabric is a client. It connects at the first use, and again after a connection broke.
type Fabric struct {
	config Config

	mu      sync.Mutex
	closed  bool
	client  vk.Client
	dialing *dialing
	conns   map[*conn]struct{} // open connections, so that Close can end their operations
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

// New makes a fabric. It does not connect.
func New(c Config) *Fabric { return &Fabric{config: c, conns: map[*conn]struct{}{}} }

// Label returns "valkey", for Redis too.
func (f *Fabric) Label() string { return Label }

// Push stores a value in pieces, then its manifest.
func (f *Fabric) Push(ctx context.Context, key string, value []byte) error {
	if int64(len(value)) > f.config.MaxBytes {
		return fmt.Errorf("%s: push: %w: %d bytes, the limit (option max) is %d", Label, fault.ErrTooLarge, len(value),
			f.config.MaxBytes)
	}
	m := manifestOf(value, f.config.ChunkBytes)
	return f.do(ctx, "push", key, func(c vk.Client, k keys) error {
		old, err := f.manifest(ctx, c, k)
		known := err == nil
		if err != nil && !errors.Is(err, fault.ErrNotFound) && !errors.Is(err, fault.ErrCorrupt) &&
			!errors.Is(err, fault.ErrTooLarge) {
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
			// The value is stored; the pieces that it replaced will expire if this fails.
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

// set returns the command that stores b. The command refers to b's memory, which is safe because a client without
// automatic pipelining runs commands on the caller's goroutine.
func (f *Fabric) set(c vk.Client, name string, b []byte, grace time.Duration) vk.Completed {
	s := c.B().Set().Key(name).Value(vk.BinaryString(b))
	if f.config.TTL > 0 {
		return s.PxMilliseconds((f.config.TTL + grace).Milliseconds()).Build()
	}
	return s.Build()
}

// renew extends the life of a stored value and reports whether all of it is there.
func (f *Fabric) renew(ctx context.Context, c vk.Client, k keys, m *manifest) (bool, error) {
	if f.config.TTL == 0 {
		n, err := c.Do(ctx, c.B().Exists().Key(append(k.chunks(m), k.manifest())...).Build()).AsInt64()
		return n == int64(m.chunks())+1, err
	}
	var commands []vk.Completed
	for _, name := range k.chunks(m) {
		commands = append(commands, c.B().Pexpire().Key(name).Milliseconds((f.config.TTL +
			chunkGrace).Milliseconds()).Build())
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

// Renew extends the life of a value, if all of its pieces are there.
func (f *Fabric) Renew(ctx context.Context, key string) error {
	return f.do(ctx, "renew", key, func(c vk.Client, k keys) error {
		m, err := f.manifest(ctx, c, k)
		if err != nil {
			return err
		}
		renewed, err := f.renew(ctx, c, k, &m)
		if err == nil && !renewed {
			err = fmt.Errorf("%w: not all of its pieces are there", fault.ErrNotFound)
		}
		return err
	})
}

// TTL returns the option ttl.
func (f *Fabric) TTL() time.Duration { return f.config.TTL }

// Pull reads the manifest, then the pieces directly into the result.
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
			last = m // a piece is missing: the value was replaced, or the server evicted it
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

// get reads values, each of exactly the length of its place. It never writes beyond the place, whatever length the
// server declares.
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
	// The cluster has changed. The client learns of it only from commands other than streams. Send one at a time,
	// because the library holds each whole reply in memory.
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

// stream reads the replies of commands directly into their places.
func stream(ctx context.Context, c vk.Client, commands []vk.Completed, places [][]byte) (first error) {
	s := c.DoMultiStream(ctx, commands...)
	answers := 0
	for ; s.HasNext(); answers++ {
		p := place{b: places[answers]}
		// After a failure read the other replies too, so that the connection can be used again.
		_, err := s.WriteTo(&p)
		if err == nil && p.n != len(p.b) {
			err = wrongLength(p.n, len(p.b))
		}
		if first == nil {
			first = err
		}
	}
	if first == nil && answers < len(places) {
		// Do not test for io.EOF: it means both that all replies were read and that the connection broke.
		first = fmt.Errorf("%w after %d of %d answers", s.Error(), answers, len(places))
	}
	return first
}

// place is the destination of one reply.
type place struct {
	b []byte
	n int
}

var errTooLong = fmt.Errorf("%w: a piece is longer than its place", fault.ErrCorrupt)

// ReadFrom reads directly into the place; io.Copy uses it instead of a buffer.
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

// Write takes short replies, which are not bulk strings.
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

// do runs one operation, and repeats it when its connection had been closed since the last use: every operation can be
// repeated. It converts errors to those of package fabric.
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

// errPanic: the client library panicked. The client is not used again.
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

// drop abandons a client. The client may hold a lock for ever, so nothing waits for it.
func (f *Fabric) drop(c vk.Client) {
	f.mu.Lock()
	if f.client == c {
		f.client = nil
	}
	f.mu.Unlock()
	go func() { _ = guarded(func() error { c.Close(); return nil }) }()
}

// stale reports whether the server had closed the connection.
func stale(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// kind converts an error of the client or server to one of package fabric.
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
