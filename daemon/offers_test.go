package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// pushed waits until nothing is queued for the fabric.
func (r *running) pushed() {
	r.t.Helper()
	r.settled()
	eventually(r.t, "nothing is queued for the fabric", func() (ok bool) {
		r.inLoop(func(l *loop) { ok = l.stores.Remote.Out.Stats().QueuedItems == 0 })
		return ok
	})
}

// renewAlways makes every use of a prefix renew its values.
func (r *running) renewAlways() {
	r.inLoop(func(l *loop) {
		l.stores.Remote.Pieces.RenewEvery(0)
	})
}

// TestFailedPushesArrive: while the store refuses everything, prompts are computed; when it is back, it gets them.
func TestFailedPushesArrive(t *testing.T) {
	mr := miniredis.RunT(t)
	args := []string{"--fabric", "redis://" + mr.Addr(), "--cache-ram", "64MiB"}
	r := serve(t, fake.Config{}, args...)
	mr.SetError("LOADING the dataset")
	ask := raw(text(0, 700), 20)
	want := solo(t, ask)
	r.expect("while it refuses", ask, want, wire.TierNone, 0)
	r.settled()
	eventually(t, "pushes fail", func() bool { return r.counter("disagg_errors_total.circuit_open") > 0 })
	mr.SetError("")
	eventually(t, "all are pushed", func() bool {
		return r.counter("disagg_blocks_offloaded_total.valkey") == 719/32*2
	})
	if n := r.counter("disagg_pushes_retried_total.valkey"); n == 0 {
		t.Error("no push was tried again")
	}
	serve(t, fake.Config{}, args...).expect("elsewhere", ask, want, wire.TierFabric, 699/32*32)
}

// TestLostValuesArePushedAgain: what the store has lost is pushed again from the pool when a request uses it.
func TestLostValuesArePushedAgain(t *testing.T) {
	mr := miniredis.RunT(t)
	args := []string{"--fabric", "redis://" + mr.Addr(), "--cache-ram", "64MiB"}
	r := serve(t, fake.Config{}, args...)
	ask := raw(text(0, 700), 20)
	want := solo(t, ask)
	r.expect("first", ask, want, wire.TierNone, 0)
	r.pushed()
	before := len(mr.Keys())
	if before == 0 {
		t.Fatal("nothing was pushed")
	}
	r.expect("a use soon after", ask, want, wire.TierDevice, 699)
	r.pushed()
	if n := r.counter("disagg_renewed_total.valkey"); n != 0 {
		t.Errorf("%v values were renewed that had just been stored", n)
	}
	mr.FlushAll()
	r.renewAlways()
	r.expect("a use after the loss", ask, want, wire.TierDevice, 699)
	eventually(t, "the store has the prompt again", func() bool {
		return r.counter("disagg_pushed_again_total.valkey") == 699/32 && len(mr.Keys()) >= before*(699/32)/(719/32)
	})
	serve(t, fake.Config{}, args...).expect("elsewhere", ask, want, wire.TierFabric, 699/32*32)
}

// TestUseRenews: a prefix that is used does not expire, one that is not does; on the machine that pulls it too.
func TestUseRenews(t *testing.T) {
	mr := miniredis.RunT(t)
	args := []string{"--fabric", "redis://" + mr.Addr() + "?ttl=1h", "--cache-ram", "64MiB"}
	one := serve(t, fake.Config{}, args...)
	used, unused := raw(text(0, 700), 5), raw(text(1, 300), 5)
	one.ask(one.dial(), used)
	one.ask(one.dial(), unused)
	one.pushed()
	all := len(mr.Keys())
	mr.FastForward(50 * time.Minute)
	two := serve(t, fake.Config{}, args...)
	two.expect("on the other machine", used, solo(t, used), wire.TierFabric, 699/32*32)
	eventually(t, "it is renewed there", func() bool { return two.counter("disagg_renewed_total.valkey") == 699/32 })
	mr.FastForward(50 * time.Minute) // pieces live ten minutes longer than their manifests
	if left := len(mr.Keys()); left == 0 || left >= all {
		t.Errorf("of %d keys %d are left", all, left)
	}
	three := serve(t, fake.Config{}, args...)
	three.expect("after the time to live of the first push", used, solo(t, used), wire.TierFabric, 699/32*32)
	three.expect("of what was not used", unused, solo(t, unused), wire.TierNone, 0)
}

// TestRestartOffersWhatItHas: what an earlier process has left on disk is offered to a fabric that it did not have,
// while no request asks for it.
func TestRestartOffersWhatItHas(t *testing.T) {
	mr := miniredis.RunT(t)
	dir := filepath.Join(t.TempDir(), "kv")
	disk := []string{"--cache-ram", "64MiB", "--cache-dir", dir}
	first := serve(t, fake.Config{}, disk...)
	shared := text(0, 300)
	var asks [4]func(*wire.Request)
	for i := range asks[:3] {
		asks[i] = raw(shared+unlike(i, 200+50*i), 20)
		if a := first.ask(first.dial(), asks[i]); a.err != nil {
			t.Fatal(a.err)
		}
	}
	first.settled()
	// The first turn's last part ends within a piece, which the second turn goes on with.
	if a := first.ask(first.dial(), raw(unlike(7, 213), 1)); a.err != nil {
		t.Fatal(a.err)
	}
	eventually(t, "the first turn is stored", func() (ok bool) {
		first.inLoop(func(l *loop) {
			found, _ := l.stores.Cache.Peek(snapshot.Namespace(os.Getuid()), l.vocabTokens(unlike(7, 213)))
			ok = found.Stored%32 != 0 && found.Stored == found.Tokens && found.Stored > 200
		})
		return ok
	})
	asks[len(asks)-1] = raw(unlike(7, 213)+unlike(8, 385), 20)
	if a := first.ask(first.dial(), asks[len(asks)-1]); a.err != nil || a.eos.Usage.CachedTokens < 200 {
		t.Fatalf("the second turn: %+v", a)
	}
	first.settled()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	r := serve(t, fake.Config{}, append(disk, "--fabric", "redis://"+mr.Addr())...)
	total := 0
	pieces := map[string]bool{}
	r.inLoop(func(l *loop) {
		for i := range asks {
			q := wire.DefaultRequest()
			asks[i](&q)
			for _, k := range l.stores.Remote.Keys(nil, uint64(os.Getuid()), l.vocabTokens(q.Prompt), 0) {
				pieces[k] = true
			}
		}
	})
	eventually(t, "every piece of the prompts is on the fabric", func() bool {
		have := strings.Join(mr.Keys(), " ")
		total = 0
		for k := range pieces {
			if strings.Contains(have, k) {
				total++
			}
		}
		return total == len(pieces)
	})
	r.pushed()
	other := serve(t, fake.Config{}, "--cache-ram", "64MiB", "--fabric", "redis://"+mr.Addr())
	for i := range asks {
		want := solo(t, asks[i])
		if a := other.ask(other.dial(), asks[i]); a.err != nil || a.text != want.text ||
			a.eos.Usage.CachedTokens < (a.eos.Usage.PromptTokens-1)/32*32 {
			t.Errorf("prompt %d elsewhere: %+v, computed %q", i, a, want.text)
		}
	}
	if n := r.counter("disagg_pushed_again_total.valkey"); n < float64(len(pieces)) {
		t.Errorf("%v pieces were pushed of %d", n, len(pieces))
	}
	r.inLoop(func(l *loop) {
		if used := r.engine.Used(); used != l.model.caps.ContextTokens-l.core.Tree().Cells().Free {
			t.Errorf("%d cells are held after the offers", used)
		}
	})
}

// TestRestartWaitsForTheFabric: the store is down when the process starts, and gets what is on disk when it is up.
func TestRestartWaitsForTheFabric(t *testing.T) {
	mr := miniredis.RunT(t)
	disk := []string{"--cache-ram", "64MiB", "--cache-dir", filepath.Join(t.TempDir(), "kv")}
	first := serve(t, fake.Config{}, disk...)
	if a := first.ask(first.dial(), raw(text(0, 400), 20)); a.err != nil {
		t.Fatal(a.err)
	}
	first.settled()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	mr.SetError("LOADING the dataset")
	r := serve(t, fake.Config{}, append(disk, "--fabric", "redis://"+mr.Addr())...)
	eventually(t, "it is asked", func() bool { return r.counter("disagg_errors_total.unavailable") > 0 })
	mr.SetError("")
	eventually(t, "it has the prompt", func() bool { return r.counter("disagg_pushed_again_total.valkey") == 419/32 })
}

// TestEverythingLostIsOffered: pushes that were given up make the loop offer the whole pool when the store is back.
func TestEverythingLostIsOffered(t *testing.T) {
	mr := miniredis.RunT(t)
	r := serve(t, fake.Config{}, "--fabric", "redis://"+mr.Addr(), "--cache-ram", "64MiB")
	for i := range 3 {
		if a := r.ask(r.dial(), raw(text(i, 300), 5)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	r.pushed()
	all := len(mr.Keys())
	mr.FlushAll()
	r.inLoop(func(l *loop) { // as if all of them had been given up
		m := l.stores.Remote
		m.Pieces.Forget(m.Pieces.Keys(func(uint64) bool { return true })...)
		m.Offers.Lose()
	})
	if a := r.ask(r.dial(), raw(text(9, 100), 5)); a.err != nil { // its pushes succeed
		t.Fatal(a.err)
	}
	const pieces, more = 3 * (304 / 32), 104 / 32
	eventually(t, "the others are pushed again", func() bool {
		return r.counter("disagg_pushed_again_total.valkey") == pieces
	})
	r.pushed()
	if n := len(mr.Keys()); n != all*(pieces+more)/pieces {
		t.Errorf("the store has %d keys, had %d for %d pieces and got %d more", n, all, pieces, more)
	}
}

// TestUnequalBuildsShareNothing: hosts whose engines are of other builds never read each other's cells, not even when
// the store has them under their own keys.
func TestUnequalBuildsShareNothing(t *testing.T) {
	mr := miniredis.RunT(t)
	args := []string{"--fabric", "redis://" + mr.Addr(), "--cache-ram", "64MiB"}
	ask := raw(text(0, 700), 20)
	want := solo(t, ask)
	one := serve(t, fake.Config{Build: "b1"}, args...)
	one.expect("on the first", ask, want, wire.TierNone, 0)
	one.pushed()
	keys := func(r *running) (out []string) {
		r.inLoop(func(l *loop) {
			out = l.stores.Remote.Keys(nil, uint64(os.Getuid()), l.vocabTokens(text(0, 700)), 0)
		})
		return out
	}
	two := serve(t, fake.Config{Build: "b2"}, args...)
	mine, theirs := keys(two), keys(one)
	for i := range mine {
		if mine[i] == theirs[i] {
			t.Fatalf("piece %d has one key for both builds", i)
		}
	}
	two.expect("on another build", ask, want, wire.TierNone, 0)
	two.pushed()
	if n := two.counter("disagg_blocks_ingested_total.valkey"); n != 0 {
		t.Errorf("%v blocks of another build were ingested", n)
	}
	serve(t, fake.Config{Build: "b1"}, args...).expect("on an equal build", ask, want, wire.TierFabric, 699/32*32)

	// The first one's values under the keys of a third build.
	three := serve(t, fake.Config{Build: "b3"}, args...)
	for i, key := range keys(three) {
		for _, name := range mr.Keys() {
			if strings.Contains(name, theirs[i]) {
				v, err := mr.Get(name)
				if err != nil {
					t.Fatal(err)
				}
				mr.Set(strings.Replace(name, theirs[i], key, 1), v)
			}
		}
	}
	three.expect("with foreign values under its keys", ask, want, wire.TierNone, 0)
	if n := three.counter("disagg_errors_total.corrupt"); n == 0 {
		t.Error("the foreign values were not looked at: the test shows nothing")
	}
}

// TestDropTakesOtherModelsAndThoughts: kv drop all removes the files that another engine build has left in the same
// directory, and the thoughts in this process's memory.
func TestDropTakesOtherModelsAndThoughts(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "kv")
	args := []string{"--cache-ram", "64MiB", "--cache-dir", dir, "--think-evict", "offload", "-c", "4096"}
	old := serve(t, fake.Config{Build: "old"}, args...)
	if a := old.ask(old.dial(), raw(text(0, 400), 5)); a.err != nil {
		t.Fatal(a.err)
	}
	old.settled()
	if err := old.stop(); err != nil {
		t.Fatal(err)
	}
	others := len(snapshotFiles(t, dir))
	r := serve(t, fake.Config{Scripts: thinker}, args...)
	if a := r.ask(r.dial(), asks(text(1, 60)+"think", 220)); a.err != nil || a.think == "" {
		t.Fatalf("%+v", a)
	}
	r.settled()
	eventually(t, "both have files", func() bool { return others > 0 && len(snapshotFiles(t, dir)) > others })
	var thoughts []string
	var store *fabric.Guard
	r.inLoop(func(l *loop) {
		m := l.stores.Thoughts
		store = m.Guard
		thoughts = m.Pieces.Keys(func(uint64) bool { return true })
	})
	if len(thoughts) == 0 {
		t.Fatal("no thought was copied out")
	}
	eventually(t, "the thought is in memory", func() bool {
		_, err := store.Pull(ctx, thoughts[0], nil)
		return err == nil
	})
	done, err := r.dial().KVDo(ctx, wire.KVDrop, "all")
	if err != nil {
		t.Fatal(err)
	}
	if left := snapshotFiles(t, dir); len(left) != 0 {
		t.Errorf("files are left after %q: %v", done.Text, left)
	}
	for _, key := range thoughts {
		if _, err := store.Pull(ctx, key, nil); !errors.Is(err, fabric.ErrNotFound) {
			t.Errorf("a part of a thought is left: %v", err)
		}
	}
	if !strings.Contains(done.Text, "parts of thoughts were dropped from memory") {
		t.Errorf("it says %q", done.Text)
	}
}
