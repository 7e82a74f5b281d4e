package tiers

import (
	"log/slog"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
	"github.com/uma-serve/uma-serve/runtime"
)

// TestPullLimit: a piece is waited for as long as computing it takes, and never longer than pullTimeout.
func TestPullLimit(t *testing.T) {
	for _, c := range []struct {
		patience time.Duration
		n        int
		want     time.Duration
	}{
		{0, 32, pullTimeout},
		{time.Millisecond, 32, 32 * time.Millisecond},
		{time.Second, 32, pullTimeout},
	} {
		if got := (&pull{patience: c.patience}).limit(c.n); got != c.want {
			t.Errorf("%v a token, %d tokens: %v, want %v", c.patience, c.n, got, c.want)
		}
	}
}

// TestSealLimit: the same for seals, which are larger.
func TestSealLimit(t *testing.T) {
	for _, c := range []struct {
		patience  time.Duration
		from, end int
		want      time.Duration
	}{
		{0, 0, 1000, sealTimeout},
		{time.Millisecond, 0, 1000, time.Second},
		{time.Millisecond, 900, 1000, 100 * time.Millisecond},
		{time.Second, 0, 1000, maxSealWait},
	} {
		if got := (&sealPull{patience: c.patience, from: c.from}).limit(c.end); got != c.want {
			t.Errorf("%v a token, [%d, %d): %v, want %v", c.patience, c.from, c.end, got, c.want)
		}
	}
}

// TestLargeSealsStay: a seal beyond the limit is neither pushed nor taken.
func TestLargeSealsStay(t *testing.T) {
	f, err := fabric.Open("memory?cap=1048576")
	if err != nil {
		t.Fatal(err)
	}
	cfg := &config.Config{}
	cfg.KVBlockTokens = 16
	o := &Options{Config: cfg, Log: slog.New(slog.DiscardHandler),
		Info: runtime.ModelInfo{KVBytesPerToken: 1024}, caps: runtime.Capabilities{Seals: true, SnapshotTokens: 1}}
	m := newRemote(f, o)
	defer m.close(t.Context())
	if n := m.mostBytes(1 << 30); n != maxSeal {
		t.Errorf("a seal of %d bytes would be taken", n)
	}
	origin := format.Origin{EngineBuild: "test", Fingerprint: format.Hash{1}}
	cache, err := snapshot.Open(snapshot.Options{Origin: origin, RAMBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close(t.Context())
	for _, c := range []struct{ limit, queued int }{{4095, 0}, {4096, 1}} {
		m.maxSeal = int64(c.limit)
		buf, err := cache.Buffer(4096)
		if err != nil {
			t.Fatal(err)
		}
		m.pushSeal(7, []runtime.Token{1, 2, 3}, buf, mrdn.ThinkComplete)
		buf.Release()
		if n := m.Out.Stats().QueuedItems; n != c.queued {
			t.Errorf("with a limit of %d bytes %d values are queued, want %d", c.limit, n, c.queued)
		}
	}
}
