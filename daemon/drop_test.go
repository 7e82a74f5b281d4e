package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// snapshotFiles are the parts in a snapshot directory.
func snapshotFiles(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), format.Suffix) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names
}

// TestDropAllReturnsWhenTheCopiesAreGone: the answer to kv drop all comes when nothing is left in the pool, in memory,
// on disk and on the fabric, what an earlier process left there included.
func TestDropAllReturnsWhenTheCopiesAreGone(t *testing.T) {
	mr := miniredis.RunT(t)
	dir := filepath.Join(t.TempDir(), "kv")
	args := []string{"--fabric", "redis://" + mr.Addr(), "--cache-ram", "64MiB", "--cache-dir", dir}
	fill := func(r *running) {
		for i := range 3 {
			if a := r.ask(r.dial(), raw(text(i, 400), 5)); a.err != nil {
				t.Fatal(a.err)
			}
		}
		r.settled()
	}
	for _, restart := range []bool{false, true} {
		r := serve(t, fake.Config{}, args...)
		fill(r)
		if restart {
			if err := r.stop(); err != nil {
				t.Fatal(err)
			}
			r = serve(t, fake.Config{}, args...)
		}
		eventually(t, "copies are everywhere",
			func() bool { return len(mr.Keys()) > 0 && len(snapshotFiles(t, dir)) > 0 })
		done, err := r.dial().KVDo(context.Background(), wire.KVDrop, "all")
		if err != nil {
			t.Fatal(err)
		}
		if files, keys := snapshotFiles(t, dir), mr.Keys(); len(files) != 0 || len(keys) != 0 {
			t.Errorf("restart %v: left are %d files and %d keys after %q", restart, len(files), len(keys), done.Text)
		}
		if rep, err := r.dial().KV(context.Background(), false); err != nil || len(rep.Entries) != 0 {
			t.Errorf("restart %v: %+v, %v", restart, rep, err)
		}
		if !strings.Contains(done.Text, "stored parts were dropped with it") ||
			!strings.Contains(done.Text, "removed from the fabric") {
			t.Errorf("restart %v: it says %q", restart, done.Text)
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if left := len(mr.Keys()); left != 0 {
			t.Errorf("restart %v: %d keys came back", restart, left)
		}
	}
}

// TestDropOneKeepsWhatOthersBeginWith: a prefix's copies go, on the fabric too, but for the part that another prefix
// shares.
func TestDropOneKeepsWhatOthersBeginWith(t *testing.T) {
	mr := miniredis.RunT(t)
	r := serve(t, fake.Config{}, "--fabric", "redis://"+mr.Addr(), "--cache-ram", "64MiB", "-c", "4000")
	shared := text(0, 300)
	for i := range 2 {
		if a := r.ask(r.dial(), raw(shared+unlike(i, 20)+text(10+i, 300), 5)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	r.settled()
	eventually(t, "it is pushed", func() (ok bool) {
		r.inLoop(func(l *loop) { ok = l.stores.Remote.Out.Stats().QueuedItems == 0 })
		return ok
	})
	both := len(mr.Keys())
	c := r.dial()
	rep, err := c.KV(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range rep.Entries {
		if e.Kind == "prefix" {
			names = append(names, e.Name)
		}
	}
	if len(names) != 2 {
		t.Fatalf("%d prefixes", len(names))
	}
	if _, err := c.KVDo(context.Background(), wire.KVDrop, names[0]); err != nil {
		t.Fatal(err)
	}
	one := len(mr.Keys())
	if one >= both || one < both/2 {
		t.Errorf("%d keys of two prefixes, %d when one was dropped", both, one)
	}
	if _, err := c.KVDo(context.Background(), wire.KVDrop, names[1]); err != nil {
		t.Fatal(err)
	}
	if left := len(mr.Keys()); left != 0 {
		t.Errorf("%d keys are left of nothing", left)
	}
}

// TestDropSaysWhatIsLeft: a fabric that cannot be reached makes the drop an error that says so.
func TestDropSaysWhatIsLeft(t *testing.T) {
	mr := miniredis.RunT(t)
	r := serve(t, fake.Config{}, "--fabric", "redis://"+mr.Addr(), "--cache-ram", "64MiB")
	if a := r.ask(r.dial(), raw(text(0, 400), 5)); a.err != nil {
		t.Fatal(a.err)
	}
	eventually(t, "it is pushed", func() bool { return len(mr.Keys()) > 0 })
	r.settled()
	mr.Close()
	_, err := r.dial().KVDo(context.Background(), wire.KVDrop, "all")
	if err == nil || !strings.Contains(err.Error(), "remain on the fabric") {
		t.Errorf("%v", err)
	}
	if rep, err := r.dial().KV(context.Background(), false); err != nil || len(rep.Entries) != 0 {
		t.Errorf("the rest is not gone: %+v, %v", rep, err)
	}
}

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func toBuffer(t *testing.T) (*lockedBuffer, *slog.Logger) {
	b := &lockedBuffer{}
	l, log := logq.New(b, func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) }, logq.Options{})
	t.Cleanup(func() { l.Close(time.Second) })
	return b, log
}

func (r *running) tier(name wire.CacheTier) reports.KVTier {
	r.t.Helper()
	rep, err := r.dial().KV(context.Background(), false)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, x := range rep.Tiers {
		if x.Tier == name {
			return x
		}
	}
	r.t.Fatalf("no tier %v", name)
	return reports.KVTier{}
}

// TestDamagedSnapshotsAreToldAndCounted: each is a line of the log (repetitions are limited), counted by kv and the
// metrics, and costs a miss.
func TestDamagedSnapshotsAreToldAndCounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	args := []string{"--cache-ram", "64MiB", "--cache-dir", dir}
	r := serve(t, fake.Config{}, args...)
	const prompts = 20
	for i := range prompts {
		if a := r.ask(r.dial(), raw(text(i, 100), 3)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	r.settled()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	files := snapshotFiles(t, dir)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-format.ChecksumBytes-1] ^= 1 // of the payload
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines, log := toBuffer(t)
	r = serveLogging(t, log, fake.Config{}, args...)
	for i := range prompts {
		// what two prompts happen to begin with
		if a := r.ask(r.dial(), raw(text(i, 100), 3)); a.err != nil || a.eos.Usage.CachedTokens > 5 {
			t.Errorf("prompt %d: %+v", i, a)
		}
	}
	r.settled()
	x := r.tier(wire.TierDisk)
	if x.Damaged < prompts || !strings.Contains(x.LastError, "damaged file") {
		t.Errorf("%+v", x)
	}
	if n := r.counter("kv_quarantined_total"); n != float64(x.Damaged) {
		t.Errorf("kv_quarantined_total is %v, kv says %d", n, x.Damaged)
	}
	eventually(t, "the log has the first of them",
		func() bool { return strings.Contains(lines.String(), "damaged file") })
	if n := strings.Count(lines.String(), "damaged file"); n > 10 {
		t.Errorf("%d lines about %d files", n, len(files))
	}
}

// TestFailingFabricIsToldAndCounted: its errors are lines of the log, limited, and counted where kv shows.
func TestFailingFabricIsToldAndCounted(t *testing.T) {
	mr := miniredis.RunT(t)
	addr := mr.Addr()
	mr.Close()
	lines, log := toBuffer(t)
	r := serveLogging(t, log, fake.Config{}, "--fabric", "redis://"+addr, "--cache-ram", "64MiB")
	for i := range 8 {
		if a := r.ask(r.dial(), raw(text(i, 300), 3)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	eventually(t, "kv shows it", func() bool {
		x := r.tier(wire.TierFabric)
		return x.Errors > 0 && x.Paused && strings.Contains(x.LastError, "refused")
	})
	eventually(t, "the log has it", func() bool {
		return strings.Contains(lines.String(), `msg="the fabric failed" operation=pull reason=unavailable`)
	})
	if n := strings.Count(lines.String(), "the fabric failed"); n > 10 {
		t.Errorf("%d lines", n)
	}
}

// silent is a store that accepts connections and commands, and answers nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
			go func() { io.Copy(io.Discard, c); c.Close() }()
		}
	}()
	return "redis://" + l.Addr().String()
}

// stalls is a store that works until it is told to hold every byte back.
func stalls(t *testing.T) (url string, stall func()) {
	t.Helper()
	mr := miniredis.RunT(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { l.Close() })
	pass := func(to, from net.Conn) {
		defer to.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			select {
			case <-stop:
				continue // swallowed
			default:
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", mr.Addr())
			if err != nil {
				return
			}
			go pass(c, back)
			go pass(back, c)
		}
	}()
	// Database 1: with 0 the client takes miniredis for a cluster, and goes to the node itself.
	return "redis://" + l.Addr().String() + "/1", func() { close(stop) }
}

// TestStopWithASlowStore: the stop ends within --shutdown-timeout, whether the store never answered or fell silent with
// much to be pushed.
func TestStopWithASlowStore(t *testing.T) {
	stalling, stall := stalls(t)
	for name, url := range map[string]string{"silent": silent(t), "stalled": stalling} {
		const timeout = 2 * time.Second
		r := serve(t, fake.Config{}, "--fabric", url, "--cache-ram", "64MiB", "--cache-dir",
			filepath.Join(t.TempDir(), "kv"), "--shutdown-timeout", timeout.String(), "-c", "8000")
		c := r.dial()
		for i := range 4 {
			if i == 2 && name == "stalled" {
				stall()
			}
			if a := r.ask(c, raw(text(i, 900), 3)); a.err != nil {
				t.Fatal(a.err)
			}
		}
		c.Close()
		begin := time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		// A busy machine may be late, but not by as much as one operation of the store may take on its own
		// (fabric.GuardConfig).
		if took := time.Since(begin); took > timeout+5*time.Second {
			t.Errorf("%s: the stop took %v of %v", name, took, timeout)
		}
	}
}
