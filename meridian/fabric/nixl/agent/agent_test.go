package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/nixltest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
	"github.com/uma-serve/uma-serve/meridian/fabric/nixl"
)

// copies is a transport between agents of this process: it copies, in NIXL's place. The tests with NIXL itself are in
// real_linux_test.go.
type copies struct {
	mu    *sync.Mutex // one for all
	all   map[string]*copies
	name  string
	base  uint64
	pool  []byte
	reads int
	fail  bool // transfers do not end
}

func (c *copies) Pool() []byte     { return c.pool }
func (c *copies) Base() uint64     { return c.base }
func (c *copies) Metadata() []byte { return []byte(c.name) }
func (c *copies) Forget(string)    {}
func (c *copies) Close()           {}

func (c *copies) Load(metadata []byte) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[string(metadata)] == nil {
		return "", errors.New("unknown metadata")
	}
	return string(metadata), nil
}

func (c *copies) Read(name string, address uint64, at, n int64, _ time.Time) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.all[name]
	if c.reads++; c.fail || address < from.base || address+uint64(n) > from.base+uint64(len(from.pool)) {
		return c.fail, errTransfer
	}
	copy(c.pool[at:at+n], from.pool[address-from.base:])
	return false, nil
}

// group are agents that are each other's peers.
type group struct {
	agents  []*agent
	moves   []*copies
	configs []nixl.Config
}

func startGroup(t testing.TB, n int, more string) *group {
	t.Helper()
	g, all, mu := &group{}, map[string]*copies{}, &sync.Mutex{}
	for i, url := range nixltest.Peers(t, n, "none", more) {
		c, err := nixl.ParseURL(nixl.WithSocket(url, filepath.Join(t.TempDir(), "s")))
		if err != nil {
			t.Fatal(err)
		}
		m := &copies{mu: mu, all: all, name: fmt.Sprint("agent", i), base: uint64(i+1) << 40,
			pool: make([]byte, c.PoolBytes)}
		all[m.name] = m
		g.configs, g.moves = append(g.configs, c), append(g.moves, m)
		g.agents = append(g.agents, newAgent(c, m, slog.New(slog.DiscardHandler)))
	}
	for i := range g.agents {
		g.run(t, i)
	}
	return g
}

// run runs an agent until the test, or stop, ends it.
func (g *group) run(t testing.TB, i int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- g.agents[i].run(ctx, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("agent %d ended with %v", i, err)
		}
		if err := g.agents[i].pool.check(); err != nil {
			t.Errorf("agent %d: %v", i, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (g *group) fabric(t testing.TB, i int) *nixl.Fabric {
	f := nixl.New(g.configs[i])
	t.Cleanup(func() { f.Close() })
	return f
}

// apart is a fabric whose pulls and renewals go to another agent than its pushes, so that each value is transferred.
type apart struct {
	*nixl.Fabric
	other *nixl.Fabric
}

func (a apart) Pull(ctx context.Context, key string, dst []byte) ([]byte, error) {
	return a.other.Pull(ctx, key, dst)
}
func (a apart) Renew(ctx context.Context, key string) error { return a.other.Renew(ctx, key) }
func (a apart) Close() error                                { return errors.Join(a.Fabric.Close(), a.other.Close()) }

// emptied is a fabric without the values that the suite pushes.
func emptied(t testing.TB, f fabric.Fabric) fabric.Fabric {
	for _, key := range []string{"k", "other", "a", "large", "good", "bad", "k0", "k1", "k2"} {
		if err := f.Delete(within(t), key); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitfor.Limit)
	t.Cleanup(cancel)
	return ctx
}

func TestConformance(t *testing.T) {
	g := startGroup(t, 3, "")
	fabrictest.Run(t, func(t testing.TB) fabric.Fabric {
		return emptied(t, apart{g.fabric(t, 0), g.fabric(t, 2)})
	})
	c := g.moves[2]
	c.mu.Lock() // a transfer of a pull that was given up may still run
	defer c.mu.Unlock()
	if c.reads == 0 {
		t.Error("nothing was transferred")
	}
}

// TestLeaseKeepsRoom: a value that a peer may read stays where it is, though it was deleted and the pool is full.
func TestLeaseKeepsRoom(t *testing.T) {
	g := startGroup(t, 2, "&pool=16MiB&max=1MiB")
	f := g.fabric(t, 0)
	fabrictest.MustPush(t, f, "k", fabrictest.Value(1, 1<<20))
	v := g.agents[0].pool.get(nameOf(t, g.configs[0], "k"))
	g.agents[0].pool.unpin(v)
	p := g.agents[1].peers[0]
	l, err := p.grant(v.name)
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	sealed := bytes.Clone(g.agents[0].bytes(v))
	if err := f.Delete(within(t), "k"); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		fabrictest.MustPush(t, f, fmt.Sprint("k", i), fabrictest.Value(uint64(i), 1<<20))
	}
	if at := l.address - g.moves[0].base; !bytes.Equal(g.moves[0].pool[at:at+uint64(l.size)], sealed) {
		t.Error("the bytes under a lease changed")
	}
	p.end(l)
	waitfor.True(t, "the room is free after the lease", func() bool {
		g.agents[0].pool.mu.Lock()
		defer g.agents[0].pool.mu.Unlock()
		return v.pins == 0
	})
}

func nameOf(t testing.TB, c nixl.Config, key string) (name [32]byte) {
	t.Helper()
	if _, err := hex.Decode(name[:], []byte(c.Key.Name(key))); err != nil {
		t.Fatal(err)
	}
	return name
}

// liar is a peer with the right namespace key that answers what it likes.
func liar(t testing.TB, c nixl.Config, address string, answer func(request []byte, c net.Conn)) {
	t.Helper()
	config, err := identity(c.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					var request [requestBytes]byte
					if _, err := io.ReadFull(c, request[:]); err != nil {
						return
					}
					answer(request[:], c)
				}
			}()
		}
	}()
}

// TestLies: whatever a peer answers costs a miss, no wrong value, and less than two seconds.
func TestLies(t *testing.T) {
	hello := func(c net.Conn) {
		c.Write(append(binary.LittleEndian.AppendUint32(nil, 6), "agent1"...))
	}
	grant := func(c net.Conn, address, size uint64) {
		b := append([]byte{peerYes}, make([]byte, 8)...)
		b = binary.LittleEndian.AppendUint64(b, address)
		c.Write(binary.LittleEndian.AppendUint64(b, size))
	}
	has := func(address, size uint64) func([]byte, net.Conn) {
		return func(r []byte, c net.Conn) {
			if r[0] == opHello {
				hello(c)
			} else if r[0] == opGet {
				grant(c, address, size)
			}
		}
	}
	const base = 2 << 40 // of agent1
	for name, lie := range map[string]struct {
		answer func([]byte, net.Conn)
		want   error
	}{
		"foreign bytes":    {has(base, 4096), fabric.ErrCorrupt},
		"foreign address":  {has(77, 4096), fabric.ErrUnavailable},
		"end of the pool":  {has(base+16<<20-4095, 4096), fabric.ErrUnavailable},
		"overflow":         {has(1<<64-4096, 8192), fabric.ErrUnavailable},
		"too large":        {has(base, 1<<62), fabric.ErrTooLarge},
		"negative":         {has(base, 1<<63+5), fabric.ErrTooLarge},
		"shorter than any": {has(base, seal.Overhead-1), fabric.ErrTooLarge},
		"silent":           {func([]byte, net.Conn) {}, fabric.ErrNotFound},
		"silent later": {func(r []byte, c net.Conn) {
			if r[0] == opHello {
				hello(c)
			}
		}, fabric.ErrNotFound},
		"hangs up":      {func(_ []byte, c net.Conn) { c.Close() }, fabric.ErrNotFound},
		"long metadata": {func(_ []byte, c net.Conn) { c.Write([]byte{255, 255, 255, 255}) }, fabric.ErrNotFound},
		"metadata of an unknown agent": {func(_ []byte, c net.Conn) {
			c.Write(append(binary.LittleEndian.AppendUint32(nil, 6), "agentX"...))
		}, fabric.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			g := &group{}
			all, mu := map[string]*copies{}, &sync.Mutex{}
			urls := nixltest.Peers(t, 2, "none", "&pool=16MiB&max=1MiB")
			c, err := nixl.ParseURL(nixl.WithSocket(urls[0], filepath.Join(t.TempDir(), "s")))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				m := &copies{mu: mu, all: all, name: fmt.Sprint("agent", i), base: uint64(i+1) << 40,
					pool: make([]byte, c.PoolBytes)}
				all[m.name] = m
				g.moves = append(g.moves, m)
			}
			copy(g.moves[1].pool, fabrictest.Value(9, 8192))
			g.configs = []nixl.Config{c}
			g.agents = []*agent{newAgent(c, g.moves[0], slog.New(slog.DiscardHandler))}
			liar(t, c, c.Peers[0], lie.answer)
			g.run(t, 0)
			f := g.fabric(t, 0)
			ctx, cancel := context.WithTimeout(context.Background(), longest)
			defer cancel()
			_, err = f.Pull(ctx, "k", nil)
			fabrictest.WantError(t, err, lie.want)
			if ctx.Err() != nil {
				t.Errorf("the pull took more than %v", longest)
			}
			fabrictest.MustPush(t, f, "k", []byte("x"))
			fabrictest.WantPull(t, f, "k", []byte("x"))
		})
	}
}

// longest is the limit on an operation when a peer dies, is silent or lies.
const longest = 2 * time.Second

// TestOtherKey: agents with different namespace keys exchange nothing.
func TestOtherKey(t *testing.T) {
	g := startGroup(t, 2, "")
	other, err := seal.NewKey(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	fabrictest.MustPush(t, g.fabric(t, 0), "k", []byte("x"))
	config := g.configs[1]
	config.Key = other
	stranger := newPeer(newAgent(config, g.moves[1], slog.New(slog.DiscardHandler)), g.configs[0].Listen)
	defer stranger.close()
	if l, err := stranger.grant(nameOf(t, g.configs[0], "k")); err == nil {
		t.Errorf("a peer with another key got %+v", l)
	}
}

// TestStuckTransfer: room that a transfer may still write to is not used again.
func TestStuckTransfer(t *testing.T) {
	g := startGroup(t, 2, "&pool=16MiB&max=1MiB")
	fabrictest.MustPush(t, g.fabric(t, 0), "k", fabrictest.Value(1, 1<<20))
	g.moves[1].mu.Lock()
	g.moves[1].fail = true
	g.moves[1].mu.Unlock()
	_, err := g.fabric(t, 1).Pull(within(t), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	p := g.agents[1].pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == 0 || p.used != p.lost {
		t.Errorf("%d bytes are lost, %d used", p.lost, p.used)
	}
}

// TestDeleteReachesPeers: a value is removed from the pools of all agents; an agent that does not run has none, and one
// that does not answer is an error.
func TestDeleteReachesPeers(t *testing.T) {
	g := startGroup(t, 2, "")
	one, two := g.fabric(t, 0), g.fabric(t, 1)
	for _, f := range []fabric.Fabric{one, two} {
		fabrictest.MustPush(t, f, "k", []byte("x"))
	}
	if err := one.Delete(within(t), "k"); err != nil {
		t.Fatal(err)
	}
	_, err := two.Pull(within(t), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrNotFound)

	urls := nixltest.Peers(t, 2, "none", "") // the second one does not run
	c, err := nixl.ParseURL(nixl.WithSocket(urls[0], filepath.Join(t.TempDir(), "s")))
	if err != nil {
		t.Fatal(err)
	}
	h := &group{configs: []nixl.Config{c}, agents: []*agent{newAgent(c, g.moves[0], slog.New(slog.DiscardHandler))}}
	stop := h.run(t, 0)
	if err := h.fabric(t, 0).Delete(within(t), "k"); err != nil {
		t.Errorf("with a peer that does not run: %v", err)
	}
	silent, err := net.Listen("tcp", c.Peers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	fabrictest.WantError(t, h.fabric(t, 0).Delete(within(t), "k"), fabric.ErrUnavailable)
	stop()
}

// TestPool: random use of the pool. Rooms never overlap, and all of it is free at the end.
func TestPool(t *testing.T) {
	const size, rounds = 1 << 20, 20_000
	p := newPool(size)
	r := rand.New(rand.NewPCG(3, 4))
	var pinned []*value
	overlap := func(v *value) bool {
		for _, o := range pinned {
			if v != o && v.room.at < o.room.at+o.room.n && o.room.at < v.room.at+v.room.n {
				return true
			}
		}
		return false
	}
	for i := range rounds {
		name := [32]byte{byte(r.IntN(40))}
		switch r.IntN(5) {
		case 0, 1:
			v, err := p.take(int64(r.IntN(90_000)))
			if errors.Is(err, errNoRoom) {
				break
			}
			if overlap(v) {
				t.Fatalf("round %d: room %v is in use", i, v.room)
			}
			v.name = name
			pinned = append(pinned, v)
			if r.IntN(4) > 0 {
				p.put(v)
			}
		case 2:
			if v := p.get(name); v != nil {
				pinned = append(pinned, v)
			}
		case 3:
			p.remove(name)
		}
		for len(pinned) > 0 && (len(pinned) > 12 || r.IntN(2) == 0) {
			k := r.IntN(len(pinned))
			p.unpin(pinned[k])
			pinned = append(pinned[:k], pinned[k+1:]...)
		}
		if err := p.check(); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	for _, v := range pinned {
		p.unpin(v)
	}
	for name := range 40 {
		p.remove([32]byte{byte(name)})
	}
	if err := p.check(); err != nil || p.used != 0 || len(p.free) != 1 || p.evicts == 0 {
		t.Errorf("%v: %d used, free %v, %d evicted", err, p.used, p.free, p.evicts)
	}
}
