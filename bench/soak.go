package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/bench/soak"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// SoakConfig configures a soak test of a front with two models.
type SoakConfig struct {
	Length    time.Duration
	Sample    time.Duration // between two samples
	PerMinute float64       // events, on average
	Stuck     time.Duration // without an event of a running request: it is stuck
	Fault     time.Duration // mean duration of a fault
	Seed      uint64
	Model     string   // file of the model that is always loaded
	Other     string   // file of the model that is loaded when it is asked
	Questions []string // for both
	Args      []string // of the daemon
	Start     func(args ...string) (*daemonproc.Proc, error)
	Log       io.Writer
	Sampled   func() // is called after each sample; nil = not
}

// The models' names, and bounds of the daemon's caches.
const (
	soakModel, soakOther = "steady", "other"
	soakCells            = 4096
	soakMemory           = 1 << 30
	soakHost             = "8MiB"
	soakDisk             = 8 << 20
	// soakAtOnce bounds the events that run at once: with more the next one waits.
	soakAtOnce = 24
)

// soakRun is a soak test of a running daemon.
type soakRun struct {
	*SoakConfig
	p     *daemonproc.Proc
	store *redis // nil: none is installed
	cache string // folder of snapshots
	rep   *soak.Report
	begin time.Time
	took  time.Duration // that the mixture was played

	mu   sync.Mutex
	want map[string]string // the answer to a request, by its frame
	ttft []float64         // of chats since the last sample, ms
	itl  []float64

	fault  sync.Mutex // one fault at a time
	frozen frozen
	idle   idle // resources of the idle daemon before the mixture
}

// RunSoak plays a mixed load on a daemon and judges the samples that it takes meanwhile.
func RunSoak(ctx context.Context, cfg SoakConfig) (*soak.Result, error) {
	dir, err := os.MkdirTemp("", "uma-soak")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &soakRun{SoakConfig: &cfg, rep: soak.NewReport("real", 0), cache: filepath.Join(dir, "snapshots"),
		want: map[string]string{}}
	args, err := r.prepare(dir)
	if err != nil {
		return nil, err
	}
	defer func() { r.store.kill() }()
	err = with(cfg.Start, append(args, cfg.Args...), func(p *daemonproc.Proc) error {
		r.p = p
		return r.run(ctx)
	})
	if err != nil {
		return nil, err
	}
	if err := r.filesAfter(); err != nil {
		return nil, err
	}
	return r.rep.Finish(r.took), nil
}

// prepare writes the daemon's configuration and starts the store.
func (r *soakRun) prepare(dir string) (args []string, err error) {
	var tables strings.Builder
	for _, m := range []struct{ name, file, more string }{
		{soakModel, r.Model, "pinned = true"},
		{soakOther, r.Other, fmt.Sprintf("idle_unload = '%v'", max(4*r.Fault/10, 200*time.Millisecond))},
	} {
		file, err := filepath.Abs(m.file)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&tables, "[models.%s]\nmodel = '%s'\n%s\n", m.name, file, m.more)
	}
	config := filepath.Join(dir, "uma-serve.toml")
	if err := os.WriteFile(config, []byte(tables.String()), 0o600); err != nil {
		return nil, err
	}
	args = []string{"--config", config, "--serve-found=false", "--memory", fmt.Sprintf("%db", soakMemory), "--ctx-size",
		fmt.Sprint(soakCells), "--threads", "1", "--parallel", "8", "--cache-ram", soakHost, "--cache-dir", r.cache,
		"--cache-disk", fmt.Sprintf("%db", soakDisk)}
	if r.store, err = startRedis(dir, "--maxmemory", "32mb", "--maxmemory-policy", "allkeys-lru"); err != nil {
		return nil, err
	}
	if r.store == nil {
		say(r.Log, "no redis-server or valkey-server on the PATH: the fabric is left out")
		return args, nil
	}
	return append(args, "--fabric", r.store.url()), nil
}

// run plays the mixture, drains the daemon and checks that nothing is left.
func (r *soakRun) run(ctx context.Context) error {
	if err := r.rest(ctx); err != nil {
		return err
	}
	r.begin = time.Now()
	stop := r.watch()
	r.play(ctx)
	r.took = time.Since(r.begin)
	stop()
	if ctx.Err() != nil {
		say(r.Log, "ended after %v", r.took.Round(time.Second))
	}
	return errors.Join(r.drained(), r.cpu())
}

// play starts the events of Length at their times, or as soon as it can, and returns when the last one has ended. ctx
// ends it early.
func (r *soakRun) play(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, soakAtOnce)
	day := soak.NewMixture(r.Seed, r.PerMinute)
	if w := soak.WarmUp(r.Length); w >= soak.LeastWarmUp { // a shorter run judges no trend
		day.WarmUp(w, soak.WarmUpTimes)
	}
	for {
		ev := day.Next()
		until := time.Until(r.begin.Add(min(ev.At, r.Length)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(until):
		}
		switch {
		case ev.At > r.Length:
			return
		case ev.Kind == soak.FabricFault && r.store == nil:
			continue
		}
		slots <- struct{}{}
		r.rep.Happened(ev.Kind)
		running.Go(func() {
			defer func() { <-slots }()
			r.event(ev)
		})
	}
}

// cpu counts the processor time of the daemon in percent of a core.
func (r *soakRun) cpu() error {
	took, err := r.p.CPU()
	r.rep.Count("daemon's CPU, % of a core", int(100*took.Seconds()/time.Since(r.begin).Seconds()+0.5))
	return err
}

// info returns the daemon's answer to info.
func (r *soakRun) info() (in reports.Info, err error) { return in, r.told("info", &in) }
