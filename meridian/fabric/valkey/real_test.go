package valkey_test

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/redistest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
)

// These run against a real server, when the PATH has one.

func TestServerConformance(t *testing.T) {
	s := redistest.Start(t)
	fabrictest.Run(t, func(t testing.TB) fabric.Fabric {
		s.Command("FLUSHALL")
		return open(t, s.URL())
	})
}

// TestServerCluster: a node in cluster mode refuses commands whose keys lie in several slots; hash tags keep a value's
// in one.
func TestServerCluster(t *testing.T) {
	s := redistest.Start(t, "--cluster-enabled", "yes")
	s.Command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	waitfor.True(t, "the cluster forms",
		func() bool { return strings.Contains(s.Command("CLUSTER", "INFO"), "cluster_state:ok") })
	fabrictest.Run(t, func(t testing.TB) fabric.Fabric {
		s.Command("FLUSHALL")
		return open(t, s.URL())
	})
}

// TestClusterMoves: a value's slot moves to another node while a client knows the old one.
func TestClusterMoves(t *testing.T) {
	a := redistest.Start(t, "--cluster-enabled", "yes")
	b := redistest.Start(t, "--cluster-enabled", "yes")
	a.Command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	a.Command("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(b.Port))
	waitfor.True(t, "the cluster forms", func() bool {
		return strings.Contains(b.Command("CLUSTER", "INFO"), "cluster_state:ok") &&
			strings.Contains(a.Command("CLUSTER", "INFO"), "cluster_known_nodes:2")
	})
	f := open(t, a.URL())
	value := fabrictest.Value(1, 20<<20)
	fabrictest.MustPush(t, f, "k", value)
	fabrictest.WantPull(t, f, "k", value)
	slot := strings.Trim(a.Command("CLUSTER", "KEYSLOT", "{k}"), ":\r\n")
	node := strings.Split(b.Command("CLUSTER", "MYID"), "\r\n")[1]
	a.Command("FLUSHALL") // a slot with keys does not move this way
	// Without IMPORTING b's claim has no newer epoch than a's: a ping of a in between takes the slot back, and then
	// each node sends clients to the other.
	owner := strings.Split(a.Command("CLUSTER", "MYID"), "\r\n")[1]
	b.Command("CLUSTER", "SETSLOT", slot, "IMPORTING", owner)
	a.Command("CLUSTER", "SETSLOT", slot, "MIGRATING", node)
	b.Command("CLUSTER", "SETSLOT", slot, "NODE", node)
	a.Command("CLUSTER", "SETSLOT", slot, "NODE", node)
	_, err := f.Pull(limit(t, waitfor.Limit), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrNotFound)
	fabrictest.MustPush(t, f, "k", value)
	fabrictest.WantPull(t, f, "k", value)
	if err := f.Delete(limit(t, waitfor.Limit), "k"); err != nil {
		t.Fatal(err)
	}
}

// TestShared: what one machine pushed, another pulls; pushing it again from there sends next to nothing.
func TestShared(t *testing.T) {
	s := redistest.Start(t)
	p := startProxy(t, s.Addr())
	a, b := open(t, s.URL()), open(t, p.url())
	frame := fabrictest.Frame(t, 1, 20<<20)
	fabrictest.MustPush(t, a, "prefix", frame)
	fabrictest.WantPull(t, b, "prefix", frame)
	before := p.up.Load()
	fabrictest.MustPush(t, b, "prefix", frame)
	if sent := p.up.Load() - before; sent > 64<<10 {
		t.Errorf("%d bytes sent for a value that was there", sent)
	}
	// A piece lost meanwhile makes it unknown again.
	keys := s.Command("KEYS", "*}:*:7")
	name := strings.Split(keys, "\r\n")[2]
	s.Command("DEL", name)
	_, err := b.Pull(limit(t, waitfor.Limit), "prefix", nil)
	fabrictest.WantError(t, err, fabric.ErrNotFound)
	fabrictest.MustPush(t, b, "prefix", frame)
	fabrictest.WantPull(t, a, "prefix", frame)
	// Replacing it and deleting it leaves nothing behind.
	fabrictest.MustPush(t, a, "prefix", []byte("short"))
	if n := s.Command("DBSIZE"); n != ":2\r\n" {
		t.Errorf("after replacing: %q keys, want the manifest and one piece", n)
	}
	if err := a.Delete(limit(t, waitfor.Limit), "prefix"); err != nil {
		t.Fatal(err)
	}
	if n := s.Command("DBSIZE"); n != ":0\r\n" {
		t.Errorf("after deleting: %q keys", n)
	}
}

// TestKilledMidTransfer: SIGKILL while bytes flow, either way. The operation fails soon, nothing half-written is ever
// returned, and the same client works again once the server is back.
func TestKilledMidTransfer(t *testing.T) {
	s := redistest.Start(t)
	p := startProxy(t, s.Addr())
	f := open(t, p.url())
	frame := fabrictest.Frame(t, 1, 32<<20)
	for round, c := range []struct {
		name     string
		up, down int64
	}{{"push, first window", 3 << 20, -1}, {"push, third window", 20 << 20, -1}, {"pull, first window", -1, 2 << 20},
		{"pull, third window", -1, 20 << 20}} {
		t.Run(c.name, func(t *testing.T) {
			if c.down >= 0 {
				fabrictest.MustPush(t, f, "k", frame)
			}
			p.when(c.up, c.down, s.Kill)
			var err error
			if c.up >= 0 {
				err = f.Push(limit(t, waitfor.Limit), "k", frame)
			} else {
				_, err = f.Pull(limit(t, waitfor.Limit), "k", nil)
			}
			wantGivenUp(t, err, false)
			err = f.Push(limit(t, waitfor.Limit), "other", frame[:100])
			fabrictest.WantError(t, err, fabric.ErrUnavailable)
			s.Start() // it remembers nothing
			_, err = f.Pull(limit(t, waitfor.Limit), "k", nil)
			fabrictest.WantError(t, err, fabric.ErrNotFound)
			value := fabrictest.Frame(t, uint64(round+2), 9<<20)
			fabrictest.MustPush(t, f, "k", value)
			fabrictest.WantPull(t, f, "k", value)
		})
	}
}

// TestCutWhileReplacing: the connection breaks while a value is replaced: the old one is still there, whole.
func TestCutWhileReplacing(t *testing.T) {
	s := redistest.Start(t)
	p := startProxy(t, s.Addr())
	f := open(t, p.url()+"?conns=1")
	old, fresh := fabrictest.Frame(t, 1, 12<<20), fabrictest.Frame(t, 2, 30<<20)
	fabrictest.MustPush(t, f, "k", old)
	var again func()
	again = func() { // each attempt of the client is cut: the first and the one with a new connection
		p.when(10<<20, -1, again)
		p.cut()
	}
	p.when(10<<20, -1, again)
	err := f.Push(limit(t, waitfor.Limit), "k", fresh)
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	p.when(-1, -1, nil)
	fabrictest.WantPull(t, f, "k", old)
	fabrictest.MustPush(t, f, "k", fresh)
	fabrictest.WantPull(t, f, "k", fresh)
}

// TestRestart: connections that died while idle cost nothing but a second attempt, however many there are.
func TestRestart(t *testing.T) {
	s := redistest.Start(t)
	f := open(t, s.URL()+"?conns=3")
	frame := fabrictest.Frame(t, 1, 4<<20)
	done := make(chan error, 3)
	for range 3 { // so that there are idle connections
		go func() { done <- f.Push(limit(t, waitfor.Limit), "k", frame) }()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	s.Kill()
	s.Start()
	_, err := f.Pull(limit(t, waitfor.Limit), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrNotFound)
	fabrictest.MustPush(t, f, "k", frame)
	fabrictest.WantPull(t, f, "k", frame)
}

// TestStalled: the other side goes silent in the middle. The deadline holds, and afterwards nothing reads the
// value any more (the race detector watches).
func TestStalled(t *testing.T) {
	s := redistest.Start(t)
	p := startProxy(t, s.Addr())
	f := open(t, p.url())
	frame := fabrictest.Frame(t, 1, 32<<20)
	fabrictest.MustPush(t, f, "k", frame)
	// on a busy machine it may be over before the stall: then disarm takes that back
	const allowed = 300 * time.Millisecond
	disarm := func() { p.when(-1, -1, nil); p.resume() }

	p.when(-1, 4<<20, p.stall)
	_, err := f.Pull(limit(t, allowed), "k", nil)
	wantGivenUp(t, err, true)
	disarm()
	fabrictest.WantPull(t, f, "k", frame)

	p.when(4<<20, -1, p.stall)
	value := fabrictest.Frame(t, 2, 32<<20)
	err = f.Push(limit(t, allowed), "k", value)
	wantGivenUp(t, err, true)
	clear(value)
	disarm()
	fabrictest.WantPull(t, f, "k", frame) // the old value: the new one's manifest was never written

	// Silent from the first byte: connecting has a deadline too.
	p.stall()
	fresh := open(t, p.url())
	_, err = fresh.Pull(limit(t, allowed), "k", nil)
	wantGivenUp(t, err, true)
	// Close does not wait either, and ends what waits.
	ended := make(chan error, 1)
	p.resume()
	p.when(-1, 4<<20, func() { p.stall(); go f.Close() })
	go func() { _, err := f.Pull(context.Background(), "k", nil); ended <- err }()
	wantGivenUp(t, waitfor.Recv(t, "Close ends what waits", ended), false)
}

// TestCorrupted: bytes changed on the server. The fabric cannot know; the guard does, and the next push repairs it.
func TestCorrupted(t *testing.T) {
	s := redistest.Start(t)
	g := fabric.NewGuard(open(t, s.URL()), fabric.GuardConfig{Failures: 100})
	frame := fabrictest.Frame(t, 1, 5<<20)
	names := func() []string {
		var names []string
		for _, line := range strings.Split(s.Command("KEYS", "uma:{k}*"), "\r\n") {
			if strings.HasPrefix(line, "uma:") {
				names = append(names, line)
			}
		}
		return names
	}
	piece := func() string {
		for _, n := range names() {
			if strings.HasSuffix(n, ":3") {
				return n
			}
		}
		t.Fatal("no fourth piece")
		return ""
	}
	for _, c := range []struct {
		name   string
		damage func()
		want   error
	}{
		{"a changed byte", func() { s.Command("SETRANGE", piece(), "1000", "!") }, fabric.ErrCorrupt},
		{"a piece too long", func() { s.Command("APPEND", piece(), "x") }, fabric.ErrCorrupt},
		{"a piece much too long", func() { s.Command("SETRANGE", piece(), "40000000", "x") }, fabric.ErrCorrupt},
		{"a piece too short", func() { s.Command("SET", piece(), "short") }, fabric.ErrCorrupt},
		{"a piece of another type", func() { n := piece(); s.Command("DEL", n); s.Command("LPUSH", n, "x") },
			fabric.ErrCorrupt},
		{"a piece gone", func() { s.Command("DEL", piece()) }, fabric.ErrNotFound},
		{"a manifest too long", func() { s.Command("APPEND", "uma:{k}", "x") }, fabric.ErrCorrupt},
		{"a manifest of zeros", func() { s.Command("SET", "uma:{k}", strings.Repeat("\x00", 32)) }, fabric.ErrCorrupt},
		{"a manifest of another type", func() { s.Command("DEL", "uma:{k}"); s.Command("LPUSH", "uma:{k}", "x") },
			fabric.ErrCorrupt},
		{"a manifest that claims an exabyte", func() { s.Command("SETRANGE", "uma:{k}", "14", "\x10") },
			fabric.ErrTooLarge},
		{"a manifest that claims more", func() { s.Command("SETRANGE", "uma:{k}", "10", "\x5f") }, fabric.ErrCorrupt},
		{"everything gone", func() { s.Command("FLUSHALL") }, fabric.ErrNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			fabrictest.MustPush(t, g, "k", frame)
			fabrictest.WantPull(t, g, "k", frame)
			c.damage()
			_, err := g.Pull(limit(t, waitfor.Limit), "k", nil)
			fabrictest.WantError(t, err, c.want)
			fabrictest.MustPush(t, g, "k", frame)
			fabrictest.WantPull(t, g, "k", frame)
		})
	}
}

func TestServerExpiry(t *testing.T) {
	s := redistest.Start(t)
	f := open(t, s.URL()+"?ttl=300ms")
	fabrictest.MustPush(t, f, "k", make([]byte, 2<<20))
	waitfor.True(t, "it expires", func() bool {
		_, err := f.Pull(limit(t, waitfor.Limit), "k", nil)
		if err != nil && !errors.Is(err, fabric.ErrNotFound) {
			t.Fatal(err)
		}
		return err != nil
	})
}

// TestLogin: a user with a password and few rights, a wrong password, a database number.
func TestLogin(t *testing.T) {
	s := redistest.Start(t)
	s.Command("ACL", "SETUSER", "uma", "on", ">p@ss/w:rd", "~uma:*", "+get", "+set", "+pexpire", "+exists", "+unlink",
		"+select")
	password := writeFile(t, "password", []byte("p@ss/w:rd\n"))
	for _, url := range []string{
		"redis://uma:p%40ss%2Fw%3Ard@" + s.Addr(),
		"valkey://uma@" + s.Addr() + "/3?password_file=" + password,
		"redis://uma@" + s.Addr() + "?db=3&password_file=" + password,
	} {
		f := open(t, url)
		value := bytes.Repeat([]byte("x"), 2<<20)
		fabrictest.MustPush(t, f, "k", value)
		fabrictest.MustPush(t, f, "k", value)
		fabrictest.WantPull(t, f, "k", value)
		if err := f.Delete(limit(t, waitfor.Limit), "k"); err != nil {
			t.Fatal(err)
		}
	}
	fabrictest.MustPush(t, open(t, s.URL()+"/5"), "k", []byte("in database 5"))
	_, err := open(t, s.URL()).Pull(limit(t, waitfor.Limit), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrNotFound)

	err = open(t, "redis://uma:wrong-secret@"+s.Addr()).Push(limit(t, waitfor.Limit), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	if !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
	err = open(t, "redis://uma@"+s.Addr()+"?prefix=other&password_file="+password).Push(limit(t, waitfor.Limit), "k",
		nil)
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	if !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("the error is %v", err)
	}
}

// TestServerFull: a full server refuses with its error, and no value is left half-written.
func TestServerFull(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "24mb", "--maxmemory-policy", "noeviction")
	f := open(t, s.URL())
	err := f.Push(limit(t, waitfor.Limit), "k", fabrictest.Value(1, 64<<20))
	fabrictest.WantError(t, err, fabric.ErrUnavailable)
	if !strings.Contains(err.Error(), "OOM") {
		t.Errorf("the error is %v", err)
	}
	_, err = f.Pull(limit(t, waitfor.Limit), "k", nil)
	fabrictest.WantError(t, err, fabric.ErrNotFound)
}

func BenchmarkServer(b *testing.B) {
	s := redistest.Start(b)
	fabrictest.Bench(b, func(b testing.TB) fabric.Fabric { return open(b, s.URL()) })
}

// BenchmarkServerFrames measures pulls as the daemon makes them: frames through a guard, checksums included.
func BenchmarkServerFrames(b *testing.B) {
	s := redistest.Start(b)
	g := fabric.NewGuard(open(b, s.URL()), fabric.GuardConfig{})
	frame := fabrictest.Frame(b, 1, 32<<20)
	fabrictest.MustPush(b, g, "k", frame)
	storage := make([]byte, len(frame))
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.Pull(context.Background(), "k", storage); err != nil {
			b.Fatal(err)
		}
	}
}
