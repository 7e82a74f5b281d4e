package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

// restart: the daemon is killed while it writes snapshots; every file found afterwards is complete, or was quarantined.
func (cfg *KVConfig) restart() ([]KVRow, error) {
	dir, err := os.MkdirTemp("", "uma-kv")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	store := filepath.Join(dir, "kv")
	args := []string{"--ctx-size", "4096", "--parallel", "4", "--threads", "1", "--cache-ram", "64MiB", "--cache-dir",
		store, "--cache-disk", "16MiB"}
	rng := rand.New(rand.NewPCG(1, 2))
	var whole, broken, temporary int
	look := func() error {
		whole, broken, temporary = 0, 0, 0
		names, err := os.ReadDir(store)
		if err != nil {
			return err
		}
		for _, f := range names {
			switch {
			case !f.Type().IsRegular():
			case strings.HasSuffix(f.Name(), format.Suffix):
				b, err := os.ReadFile(filepath.Join(store, f.Name()))
				if err != nil {
					return err
				}
				if h, _, err := format.Open(b); err != nil || h.Key() != format.KeyOf(f.Name()) {
					broken++
					say(cfg.Log, "  %s: %v", f.Name(), err)
				} else {
					whole++
				}
			case f.Name() != "lock":
				temporary++ // of an interrupted write; the next start removes it
			}
		}
		return nil
	}
	during, most := 0, 0 // kills that interrupted a write, files seen
	for i := range cfg.Kills {
		p, err := cfg.StartTiny(args...)
		if err != nil {
			return nil, err
		}
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() { askKV(p.Socket, prompt(i*4+k, 940, 200), 1, nil) })
		}
		wg.Wait()
		time.Sleep(time.Duration(rng.IntN(8000)) * time.Microsecond)
		if err := p.Kill(); err != nil {
			return nil, err
		}
		p.Stop(time.Second) // it was killed: this removes its directory
		if err := look(); err != nil {
			return nil, err
		}
		if broken > 0 {
			break
		}
		if temporary > 0 {
			during++
		}
		most = max(most, whole)
	}
	found := broken
	p, err := cfg.StartTiny(args...)
	if err != nil {
		return nil, err
	}
	m, err := counters(p)
	if err := errors.Join(err, p.Stop(10*time.Second)); err != nil {
		return nil, err
	}
	if most == 0 {
		return nil, errors.New("no file was written before a kill: the row shows nothing")
	}
	return []KVRow{atMost("restart", fmt.Sprintf("broken files after %d times kill -9", cfg.Kills),
		fmt.Sprintf("%d (up to %d whole ones; %d kills cut a write off; %.0f quarantined)", found, most, during,
			m("kv_quarantined_total")), "", float64(found), 0, "")}, nil
}
