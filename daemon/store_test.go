package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// Cells that leave the pool and come back. The answers must equal those of a daemon that computes everything.

// solo returns the answer of a daemon without any cache.
func solo(t *testing.T, edit func(*wire.Request)) answer {
	t.Helper()
	r := serve(t, fake.Config{}, "--no-prefix-cache", "-c", "8192")
	a := r.ask(r.dial(), edit)
	if a.err != nil {
		t.Fatal(a.err)
	}
	r.stop()
	return a
}

func (r *running) expect(what string, edit func(*wire.Request), want answer, tier wire.CacheTier, cached int) {
	r.t.Helper()
	got := r.ask(r.dial(), edit)
	if got.err != nil || got.text != want.text || got.think != want.think {
		r.t.Errorf("%s: %+v, computed %+v", what, got, want)
	}
	if u := got.eos.Usage; u.CacheTier != tier || u.CachedTokens != cached {
		r.t.Errorf("%s: %d tokens from %v, want %d from %v; %s", what, u.CachedTokens, u.CacheTier, cached, tier,
			u.CacheMiss)
	}
	r.settled()
}

// evictAll evicts all cached prefixes from the pool, as if other requests had needed the cells, and leaves the stores
// alone.
func (r *running) evictAll() {
	r.t.Helper()
	r.settled()
	r.inLoop(func(l *loop) {
		for _, e := range l.core.Tree().Entries(nil) {
			if _, err := l.stores.Save(e.ID); err != nil {
				r.t.Error(err)
			}
			if err := l.core.Drop(e.ID); err != nil {
				r.t.Error(err)
			}
		}
		if c := l.core.Tree().Cells(); c.Cached != 0 {
			r.t.Errorf("after eviction: %+v", c)
		}
	})
}

// A prompt whose cells others needed comes back from host memory.
func TestEvictedPrefixComesBackFromHost(t *testing.T) {
	ask := raw(text(0, 300), 20)
	want := solo(t, ask)
	r := serve(t, fake.Config{}, "-c", "600", "--cache-ram", "64MiB")
	r.expect("first", ask, want, wire.TierNone, 0)
	for i := range 2 {
		if a := r.ask(r.dial(), raw(text(1+i, 400), 20)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	r.settled()
	r.inLoop(func(l *loop) {
		if m := l.core.Tree().Lookup(&kvsnap.Prompt{NS: uint64(os.Getuid()),
			Tokens: append(l.vocabTokens(text(0, 300)), 9)}); m.Len > 100 {
			t.Errorf("%d tokens are still in the pool: the test shows nothing", m.Len)
		}
	})
	r.expect("again", ask, want, wire.TierHost, 299)
	r.expect("and again", ask, want, wire.TierDevice, 299)
	if n := r.counter("kv_restore_host_ms.count"); n != 1 {
		t.Errorf("%v restores from host were counted", n)
	}
}

func (l *loop) vocabTokens(s string) []kvsnap.Token {
	toks, err := l.model.vocab.Tokenize(nil, s, true, false)
	if err != nil {
		panic(err)
	}
	return toks
}

// Prompts that begin alike and differ from a place within a copied part on are both kept whole.
func TestSnapshotsThatPartWithinAPart(t *testing.T) {
	a, b := raw(text(0, 200)+unlike(0, 200), 5), raw(text(0, 200)+unlike(1, 200), 5)
	r := serve(t, fake.Config{}, "-c", "2000", "--cache-ram", "64MiB")
	wantA, wantB := solo(t, a), solo(t, b)
	r.expect("a", a, wantA, wire.TierNone, 0)
	r.expect("b", b, wantB, wire.TierDevice, 200)
	r.evictAll()
	r.expect("a again", a, wantA, wire.TierHost, 384) // the index looks at every 16th token
	r.evictAll()
	r.expect("b again", b, wantB, wire.TierHost, 384)
}

// TestFetchAfterEviction: the store has lost a part that it had found. The snapshot that is left differs from the
// prompt from a place within a part on: the cells behind that place are another prompt's.
func TestFetchAfterEviction(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "2000", "--cache-ram", "64MiB")
	if a := r.ask(r.dial(), raw(text(0, 200)+unlike(0, 200), 5)); a.err != nil {
		t.Fatal(a.err)
	}
	r.evictAll()
	r.inLoop(func(l *loop) {
		tokens := l.vocabTokens(text(0, 200) + unlike(1, 200))
		found, ok := l.stores.Cache.Peek(snapshot.Namespace(uint64(os.Getuid())), tokens)
		if !ok || found.Tokens < 150 || found.Tokens > 210 {
			t.Fatalf("the store has %+v", found)
		}
		const id = 1 << 20 // unknown to the core
		seq := l.core.Tree().ScratchSeq(1)
		l.stores.CarryOut(&core.Op{Kind: core.Fetch, Restore: id, NS: uint64(os.Getuid()), Tokens: tokens,
			Tier: core.Host})
		l.result.Copies = l.result.Copies[:0]
		l.stores.CarryOut(&core.Op{Kind: core.CopyIn, Restore: id, Dst: seq, To: len(tokens), Limit: len(tokens)})
		d := l.result.Copies[0]
		l.result.Copies = l.result.Copies[:0]
		_, last := l.eng.SeqRange(seq)
		if d.To != found.Tokens || int(last) != found.Tokens-1 || d.State != core.PartsOver {
			t.Errorf("%+v, cells up to %d; the prompts have %d tokens in common", d, last, found.Tokens)
		}
		l.eng.SeqRemove(seq, 0, -1)
		l.stores.CarryOut(&core.Op{Kind: core.CloseFetch, Restore: id})
	})
}

// Eight requests want the same evicted prefix: it is restored once, and no request computes it.
func TestRestoreIsShared(t *testing.T) {
	shared := text(0, 1000)
	r := serve(t, fake.Config{}, "-c", "4000", "--cache-ram", "64MiB", "--cache-dir", filepath.Join(t.TempDir(), "kv"))
	if a := r.ask(r.dial(), raw(shared, 2)); a.err != nil {
		t.Fatal(a.err)
	}
	r.evictAll()
	before := r.counter("prefill_tokens_merged_total")
	var wg sync.WaitGroup
	h := r.hold() // until all eight are there
	for i := range 8 {
		c := r.dial()
		wg.Go(func() {
			if a := r.ask(c, raw(shared+unlike(i, 20), 3)); a.err != nil || a.eos.Usage.CachedTokens != 1000 {
				t.Errorf("%+v", a)
			}
		})
	}
	h.arrived(8)
	h.release()
	wg.Wait()
	r.settled()
	if got := r.counter("prefill_tokens_merged_total") - before; got != 8*20 {
		t.Errorf("%v prompt tokens were computed, want %d", got, 8*20)
	}
	if n := r.counter("kv_restore_host_ms.count"); n != 1 {
		t.Errorf("the prefix came back %v times", n)
	}
}

// files returns the snapshots below dir.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, e := d.Info(); err == nil && e == nil && d.Type().IsRegular() && info.Size() > 200 {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// After a restart the first turn of a known conversation is warm; damaged parts are computed again.
func TestRestartIsWarm(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	ask := raw(text(0, 700), 20)
	want := solo(t, ask)
	args := []string{"--cache-dir", dir, "--cache-ram", "64MiB"}
	first := serve(t, fake.Config{}, args...)
	first.expect("before", ask, want, wire.TierNone, 0)
	first.stop()
	if len(files(t, dir)) == 0 {
		t.Fatal("nothing was written")
	}

	second := serve(t, fake.Config{}, args...)
	second.expect("after a restart", ask, want, wire.TierDisk, 699)
	second.stop()

	for _, path := range files(t, dir) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-20] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	third := serve(t, fake.Config{}, args...)
	third.expect("after the damage", ask, want, wire.TierNone, 0)
	eventually(t, "the damaged files are put aside", func() bool { return third.counter("kv_quarantined_total") > 0 })
	third.stop()
	// The parts found to be damaged are written again; a damaged one that was not read yet is found now.
	fourth := serve(t, fake.Config{}, args...)
	if a := fourth.ask(fourth.dial(), ask); a.err != nil || a.text != want.text ||
		a.eos.Usage.CacheTier != wire.TierDisk || a.eos.Usage.CachedTokens < 384 {
		t.Errorf("written anew: %+v", a)
	}
	fourth.settled()
}

// A prompt that one machine computed is restored on another one; a fabric that lies or is gone costs misses only.
func TestFabricBetweenTwoServers(t *testing.T) {
	mr := miniredis.RunT(t)
	ask := raw(text(0, 700), 20)
	want := solo(t, ask)
	args := []string{"--fabric", "redis://" + mr.Addr(), "--cache-ram", "64MiB"}
	one := serve(t, fake.Config{}, args...)
	one.expect("on the first", ask, want, wire.TierNone, 0)
	eventually(t, "it is pushed", func() bool {
		return one.counter("disagg_blocks_offloaded_total.valkey") == 719/32*2
	})
	two := serve(t, fake.Config{}, args...)
	two.expect("on the second", ask, want, wire.TierFabric, 699/32*32)
	if n := two.counter("disagg_blocks_ingested_total.valkey"); n != 699/32*2 {
		t.Errorf("%v blocks were ingested, want %d", n, 699/32*2)
	}

	for _, key := range mr.Keys() {
		if v, err := mr.Get(key); err == nil && len(v) > 0 {
			mr.Set(key, v[:len(v)-1]+string(v[len(v)-1]^1))
		}
	}
	three := serve(t, fake.Config{}, args...)
	if a := three.ask(three.dial(), ask); a.err != nil || a.text != want.text ||
		a.eos.Usage.CacheTier != wire.TierNone {
		t.Errorf("a fabric that lies: %+v", a)
	}
	three.settled()

	mr.Close()
	for i := range 6 {
		edit := raw(text(10+i, 300), 5)
		if a, want := two.ask(two.dial(), edit), solo(t, edit); a.err != nil || a.text != want.text {
			t.Errorf("without the fabric: %+v", a)
		}
	}
	two.settled()
}

// What host memory has no room for is found in the fabric of this process.
func TestSyntheticFabric(t *testing.T) {
	for _, url := range []string{"memory", "nixl-synth"} {
		ask := raw(text(0, 700), 20)
		want := solo(t, ask)
		r := serve(t, fake.Config{}, "--fabric", url, "--cache-ram", "64KiB", "-c", "2000")
		r.expect("first", ask, want, wire.TierNone, 0)
		eventually(t, "it is pushed",
			func() bool { return r.counter("disagg_blocks_offloaded_total."+url) == 719/32*2 })
		r.evictAll()
		r.inLoop(func(l *loop) {
			ns := snapshot.Namespace(os.Getuid())
			if _, err := l.stores.Cache.DeleteNamespaces(context.Background(),
				func(n snapshot.Namespace) bool { return n == ns }); err != nil {
				t.Error(err)
			}
		})
		r.expect("again", ask, want, wire.TierFabric, 699/32*32)
	}
}

// A fabric that never answers holds a few requests up for a moment, and then is left alone.
func TestHangingFabric(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts connections, and nothing reads from them
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r := serve(t, fake.Config{}, "--fabric", "redis://"+silent.Addr().String(), "--cache-ram", "64MiB",
		"--shutdown-timeout", "2s")
	c := r.dial()
	for asked := 0; r.counter("disagg_circuit_open.valkey") == 0; asked++ {
		if asked == 8 {
			t.Fatalf("after %d requests the fabric is still asked: %v timeouts", asked,
				r.counter("disagg_errors_total.timeout"))
		}
		if a := r.ask(c, raw(text(asked, 300), 3)); a.err != nil || a.tokens != 3 {
			t.Fatalf("%+v", a)
		}
	}
	if n := r.counter("disagg_errors_total.timeout"); n == 0 {
		t.Error("nothing has waited for the fabric: the test shows nothing")
	}
	if a := r.ask(c, raw(text(9, 300), 3)); a.err != nil || a.tokens != 3 {
		t.Fatalf("with an open circuit: %+v", a)
	}
	r.nothingLeft()
}

// The stores under a storm: conversations come back to a pool far too small for them, through host, disk and fabric.
func TestStoresUnderPressure(t *testing.T) {
	mr := miniredis.RunT(t)
	const sessions, turns = 8, 4
	prompt := func(i, turn int) func(*wire.Request) {
		s := text(0, 150)
		for k := range turn + 1 {
			s += unlike(i, 20) + text(1000*i+k, 60)
		}
		return raw(s, 30)
	}
	reference := serve(t, fake.Config{}, "--no-prefix-cache", "-c", "8192")
	rc := reference.dial()
	for _, stores := range [][]string{
		{"--cache-ram", "1MiB"},
		{"--cache-ram", "1MiB", "--cache-dir", filepath.Join(t.TempDir(), "kv"), "--think-evict", "offload"},
		{"--cache-ram", "16KiB", "--fabric", "redis://" + mr.Addr()},
	} {
		r := serve(t, fake.Config{}, append([]string{"-c", "900", "--parallel", "4"}, stores...)...)
		var wg sync.WaitGroup
		for i := range sessions {
			c := r.dial()
			wg.Go(func() {
				for turn := range turns {
					if a, want := r.ask(c, prompt(i, turn)), reference.ask(rc, prompt(i, turn)); a.err != nil ||
						a.text != want.text {
						t.Errorf("%v: session %d turn %d: %+v, computed %+v", stores, i, turn, a, want)
					}
				}
			})
		}
		wg.Wait()
		r.settled()
		t.Logf("%v: hits host %v disk %v fabric %v, %v prompt tokens computed", stores, r.counter("kv_hits_total.host"),
			r.counter("kv_hits_total.disk"), r.counter("kv_hits_total.fabric"),
			r.counter("prefill_tokens_merged_total"))
	}
}

// A request that waits for a restore may be cancelled, or the pool may be needed for something else.
func TestWaiterOfARestoreGoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	r := serve(t, fake.Config{}, "-c", "4000", "--cache-ram", "64MiB", "--cache-dir", dir)
	shared := text(0, 3000)
	want := r.ask(r.dial(), raw(shared, 5))
	for i := range 20 {
		r.evictAll()
		c, closed := r.dial(), r.counter("closed_total")
		q := wire.DefaultRequest()
		q.ID, q.Prompt, q.MaxTokens = fmt.Sprint(i), shared, 5
		if _, err := c.Stream(context.Background(), &q); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // another step of the restore each time
			for range i {
				r.inLoop(func(*loop) {})
			}
		}
		c.Close()
		eventually(t, "the request is read and the connection closed", func() bool {
			return r.counter("closed_total") > closed
		})
		r.nothingLeft()
	}
	if a := r.ask(r.dial(), raw(shared, 5)); a.err != nil || a.text != want.text {
		t.Errorf("%+v, want %+v", a, want)
	}
	r.settled()
}
