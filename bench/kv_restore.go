package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/internal/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// restore compares the time to restore a prompt's cells from each tier with the time to compute them.
func (cfg *KVConfig) restore() (rows []KVRow, err error) {
	dir, err := os.MkdirTemp("", "uma-kv")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	store, err := startRedis(dir)
	if err != nil {
		return nil, err
	}
	defer store.kill()
	args := []string{"--parallel", "4", "--cache-ram", "1GiB"}
	disk := append(slices.Clone(args), "--cache-dir", filepath.Join(dir, "kv"))
	all := append(slices.Clone(disk), "--ctx-size", fmt.Sprint(max(8192, 2*kvPrompts*kvPrefix)))
	if store != nil {
		all = append(all, "--fabric", store.url())
	}
	var w writer
	// The second time an answer is in the cache, and a step would verify it whole; the time between two tokens is to be
	// that of a step.
	plain := func(r *wire.Request) { r.Speculate, r.SpeculateSet = 0, true }
	measure := func(p *daemonproc.Proc, tier wire.CacheTier) (ttft, step []float64, err error) {
		for i := range kvPrompts {
			r, err := askKV(p.Socket, w.text(i, 910, kvPrefix+6), 8, plain)
			if err != nil {
				return nil, nil, err
			}
			// all prompts may begin with the same token
			if u := r.eos.Usage; u.CacheTier != tier && (tier != wire.TierNone || u.CachedTokens > 8) {
				return nil, nil, fmt.Errorf("prompt %d: %d tokens came from %v, want %v: %s", i, u.CachedTokens,
					u.CacheTier, tier, u.CacheMiss)
			}
			ttft, step = append(ttft, ms(r.ttft)), append(step, median(r.gaps))
		}
		return ttft, step, nil
	}
	var cold float64
	row := func(p *daemonproc.Proc, tier wire.CacheTier, limit float64) error {
		ttft, _, err := measure(p, tier)
		if err != nil {
			return err
		}
		m, err := counters(p)
		if err != nil {
			return err
		}
		measured := fmt.Sprintf("%.1f ms", median(ttft))
		name := "kv_restore_" + tier.String() + "_ms"
		if n := m(name + ".count"); n > 0 {
			measured += fmt.Sprintf(" (%.1f in the daemon)", m(name+".sum")/n)
		}
		rows = append(rows, atMost("restore", tier.String()+" hit to first token", measured,
			fmt.Sprintf("computing it, %.0f ms", cold), median(ttft)/cold, limit, ""))
		return nil
	}
	err = with(cfg.Start, all, func(p *daemonproc.Proc) error {
		if w, err = newWriter(p.Socket); err != nil {
			return err
		}
		ttft, _, err := measure(p, wire.TierNone)
		if err != nil {
			return err
		}
		cold = median(ttft)
		// Snapshots of the cold prompts are still being written, on both cores. Row inter-token measures that.
		if err := copiesDone(p); err != nil {
			return err
		}
		// A step of one row over the same cells is the tail's prefill.
		var over, steps []float64
		for i := range 5 { // the figure is about a millisecond: more samples than elsewhere
			ttft, step, err := measure(p, wire.TierDevice)
			if err != nil {
				return err
			}
			if i == 0 {
				continue // after seconds of idling a processor is slow for half a second
			}
			for i := range ttft {
				over = append(over, ttft[i]-step[i])
			}
			steps = append(steps, step...)
		}
		rows = append(rows, atMost("restore", "device hit beyond the tail's prefill",
			fmt.Sprintf("%.2f ms", median(over)), fmt.Sprintf("a step of one token, %.1f ms", median(steps)),
			median(over), 1, " ms"))
		return nil
	})
	if err != nil {
		return rows, err
	}
	// The pool has room for one and a half prompts: each prompt evicts the one before, and is found in host memory the
	// second time.
	small := append(disk, "--ctx-size", fmt.Sprint(kvPrefix*3/2))
	err = with(cfg.Start, small, func(p *daemonproc.Proc) error {
		if err := row(p, wire.TierDisk, 0.10); err != nil {
			return err
		}
		return row(p, wire.TierHost, 0.05)
	})
	if err != nil {
		return rows, err
	}
	if store == nil {
		say(cfg.Log, "  no redis-server or valkey-server on the PATH: the fabric is left out")
		return rows, nil
	}
	return rows, with(cfg.Start, append(args, "--ctx-size", "8192", "--fabric", store.url()),
		func(p *daemonproc.Proc) error { return row(p, wire.TierFabric, 0.15) })
}

// copiesDone waits until the daemon has taken no snapshot for a second.
func copiesDone(p *daemonproc.Proc) error {
	for last := -1.0; ; time.Sleep(time.Second) {
		m, err := counters(p)
		if err != nil {
			return err
		}
		n := m("kv_snapshots_total")
		if n == last {
			return nil
		}
		last = n
	}
}
