package daemon

import (
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestHostTierGivesMemoryBack: when other programs need the machine's memory, evicted prefixes make way, and the
// answers stay right; when it is free again, prefixes are kept again.
func TestHostTierGivesMemoryBack(t *testing.T) {
	var available atomic.Uint64
	available.Store(8 << 30)
	machine := func() hostmem.Memory { return hostmem.Memory{Total: 16 << 30, Available: available.Load()} }
	for _, extra := range [][]string{nil, {"--think-evict", "offload"}} {
		args := append([]string{"-c", "8192", "--cache-ram", "64MiB"}, extra...)
		r := serveOverridden(t, slog.New(slog.DiscardHandler), fake.Config{}, overrides{memory: machine}, args...)
		edit := raw(text(0, 400), 5)
		want := r.ask(r.dial(), edit)
		if want.err != nil {
			t.Fatal(want.err)
		}
		held := func() (n int64) {
			r.inLoop(func(l *loop) { n, _ = l.stores.HostBytes() })
			return n
		}
		evict := func() { // as if other requests had needed the cells; a tier without room refuses them
			r.settled()
			r.inLoop(func(l *loop) {
				for _, e := range l.core.Tree().Entries(nil) {
					_, _ = l.stores.Save(e.ID)
					if err := l.core.Drop(e.ID); err != nil {
						t.Error(err)
					}
				}
			})
		}
		evict()
		if held() == 0 {
			t.Fatal("nothing was kept")
		}
		available.Store(1 << 20)
		waitfor.True(t, "the memory is given back", func() bool { return held() == 0 })
		if got := r.ask(r.dial(), edit); got.err != nil || got.text != want.text || got.eos.Usage.CachedTokens != 0 {
			t.Errorf("%+v, want %+v", got, want)
		}
		evict()
		if n := held(); n != 0 {
			t.Errorf("%d bytes are kept while none can be spared", n)
		}
		available.Store(8 << 30)
		waitfor.True(t, "prefixes are kept again", func() bool {
			r.ask(r.dial(), edit)
			evict()
			return held() > 0
		})
		r.stop()
	}
}

// TestHostTierTakesTheNewestCap: of caps that the front sends one after the other, the last stays, whichever goroutine
// sets its own last.
func TestHostTierTakesTheNewestCap(t *testing.T) {
	r := serve(t, fake.Config{}, "-c", "8192", "--cache-ram", "64MiB")
	waitfor.True(t, "the loop runs", func() bool { return r.loop.Load() != nil })
	l := r.loop.Load()
	f := &frontLink{}
	for round := range 50 {
		var last int64
		for i := range int64(8) {
			last = 1<<20*(i+1) + int64(round)
			f.hearHostTier(r.Server, link.HostTierMessage(last))
		}
		waitfor.True(t, "the newest cap is set", func() bool {
			f.resizing.Lock() // those that wait come later, and set the same
			defer f.resizing.Unlock()
			return l.stores.Cap() == last
		})
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}
