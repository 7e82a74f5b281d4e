package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/bench/soak"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
)

// soakProcesses are the daemon's processes, as the series call them.
var soakProcesses = []string{"front", soakModel, soakOther}

// missedSamples in a row are an error: one may fail on a machine that does other work.
const missedSamples = 3

// watch samples the daemon until stop is called.
func (r *soakRun) watch() (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(r.Sample)
		defer t.Stop()
		for missed := 0; ; {
			select {
			case <-quit:
				return
			case <-t.C:
				before := r.frozen.count()
				switch err := r.sample(); {
				case err == nil:
					missed = 0
				case !r.frozen.during(before):
					r.rep.Count("samples missed", 1)
					if missed++; missed == missedSamples {
						r.rep.Broken("%d samples in a row failed: %v", missed, err)
					}
				}
				if r.Sampled != nil {
					r.Sampled()
				}
			}
		}
	})
	return func() { close(quit); wg.Wait() }
}

// told reads the daemon's answer to an admin question.
func (r *soakRun) told(what string, v any) error {
	text, err := r.p.Ask(what)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("%s: %w in %.200s", what, err, text)
	}
	return nil
}

// pids returns the processes by their names in soakProcesses; those that do not run are left out.
func (r *soakRun) pids(in *reports.Info) map[string]int {
	pids := map[string]int{"front": r.p.Cmd.Process.Pid}
	for _, m := range in.Models {
		if m.PID != 0 {
			pids[m.Name] = m.PID
		}
	}
	return pids
}

// gone reports whether err says that a process has ended meanwhile.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// sample adds one value to each series, and checks the daemon's counters (books).
func (r *soakRun) sample() error {
	at := time.Since(r.begin)
	in, err := r.info()
	if err != nil {
		return err
	}
	pids := r.pids(&in)
	for _, name := range soakProcesses {
		rss, files, open := math.NaN(), math.NaN(), math.NaN()
		if pid := pids[name]; pid != 0 {
			all, shared, err1 := daemonproc.ResidentOf(pid)
			n, err2 := daemonproc.DescriptorsOf(pid)
			if err := errors.Join(err1, err2); err == nil {
				rss, files, open = float64(all)/(1<<20), float64(shared)/(1<<20), float64(n)
			} else if !gone(err) {
				return err
			}
		}
		r.rep.Sample(at, "RSS of "+name, "MiB", soak.Bounded, rss)
		r.rep.Sample(at, "of it files and shared memory of "+name, "MiB", soak.Shown, files)
		r.rep.Sample(at, "descriptors of "+name, "", soak.Bounded, open)
	}
	if err := r.books(at, &in); err != nil {
		return err
	}
	r.mu.Lock()
	ttft, itl := r.ttft, r.itl
	r.ttft, r.itl = nil, nil
	r.mu.Unlock()
	r.rep.Sample(at, "p99 of TTFT", "ms", soak.Flat, report.Percentile(ttft, 99))
	r.rep.Sample(at, "p99 of ITL", "ms", soak.Flat, report.Percentile(itl, 99))
	return nil
}

// books samples the daemon's counters, and reports those that do not add up.
func (r *soakRun) books(at time.Duration, in *reports.Info) error {
	var kv reports.KVReport
	var m struct {
		Models map[string]struct {
			Interactive float64 `json:"queued_interactive"`
			Background  float64 `json:"queued_background"`
		}
	}
	if err := errors.Join(r.told("kv", &kv), r.told("metrics", &m)); err != nil {
		return err
	}
	counted, queue, goroutines := int64(0), 0.0, 0.0
	for _, model := range in.Models {
		if model.State == "loading" || model.State == "ready" || model.State == "unloading" {
			counted += model.MemoryBytes
		}
		if model.Info != nil {
			r.rep.Sample(at, "Go heap of "+model.Name, "MiB", soak.Shown, float64(model.Info.Memory.GoHeap)/(1<<20))
			goroutines += float64(model.Info.Live.Goroutines)
		}
		queue += m.Models[model.Name].Interactive + m.Models[model.Name].Background
		c := kv.Models[model.Name]
		if c == nil {
			continue
		}
		if sum := c.Cells.Own + c.Cells.Shared + c.Cells.Cached + c.Cells.Pinned + c.Cells.Free; sum != c.Cells.Total {
			r.rep.Broken("%s: %d cells are counted, of %d: %+v", model.Name, sum, c.Cells.Total, c.Cells)
		}
		if model.Name == soakModel {
			r.rep.Sample(at, "cells in use", "", soak.Shown, float64(c.Cells.Own+c.Cells.Shared))
			r.rep.Sample(at, "cells cached", "", soak.Shown, float64(c.Cells.Cached))
		}
	}
	if counted > soakMemory {
		r.rep.Broken("the memory ledger has %d bytes; --memory is %d", counted, soakMemory)
	}
	r.rep.Sample(at, "memory ledger", "MiB", soak.Shown, float64(counted)/(1<<20))
	r.rep.Sample(at, "goroutines of the models", "", soak.Shown, goroutines)
	r.rep.Sample(at, "queue", "", soak.Shown, queue)
	files, bytes, err := r.files()
	r.rep.Sample(at, "snapshot files", "", soak.Shown, float64(files))
	r.rep.Sample(at, "snapshots", "MiB", soak.Shown, float64(bytes)/(1<<20))
	return err
}

// files counts the files of the snapshot folders. Some come and go meanwhile.
func (r *soakRun) files() (n int, bytes int64, err error) {
	err = filepath.WalkDir(r.cache, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return skipGone(err)
		}
		info, err := d.Info()
		if err == nil {
			n, bytes = n+1, bytes+info.Size()
		}
		return skipGone(err)
	})
	return n, bytes, err
}

func skipGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// idle has the open descriptors and the goroutines of an idle daemon, by process.
type idle struct {
	descriptors map[string]int
	goroutines  map[string]int
}

// holds reads the daemon's descriptors and goroutines; an error says that the daemon is not idle.
func (r *soakRun) holds() (out idle, err error) {
	in, err := r.info()
	if err != nil {
		return out, err
	}
	if in.Live.Sessions > 1 { // the connection of this question
		return out, fmt.Errorf("%d connections", in.Live.Sessions)
	}
	out = idle{map[string]int{}, map[string]int{}}
	for _, m := range in.Models {
		if m.Info == nil || m.State != "ready" {
			if m.Name == soakModel {
				return out, fmt.Errorf("%s is %s", m.Name, m.State)
			}
			continue
		}
		if l := m.Info.Live; l.Requests != 0 || l.InFlight != 0 || l.Sequences != 0 || l.Resident != 0 ||
			l.LiveCells != 0 || l.FreeCells != m.Info.ContextTokens() {
			return out, fmt.Errorf("%s holds %d requests, %d in flight, %d sequences (%d with cells) and %d cells, "+
				"and %d of %d cells are free", m.Name, l.Requests, l.InFlight, l.Sequences, l.Resident, l.LiveCells,
				l.FreeCells, m.Info.ContextTokens())
		}
		out.goroutines[m.Name] = m.Info.Live.Goroutines
	}
	for name, pid := range r.pids(&in) {
		if out.descriptors[name], err = daemonproc.DescriptorsOf(pid); err != nil {
			return out, err
		}
	}
	return out, nil
}

// settled waits until holds has no error and ok agrees; the last error otherwise.
func (r *soakRun) settled(within time.Duration, ok func(*idle) error) (out idle, err error) {
	begin, said := time.Now(), time.Now()
	for ; ; time.Sleep(50 * time.Millisecond) {
		if out, err = r.holds(); err == nil {
			err = ok(&out)
		}
		if time.Since(said) > 5*time.Second && err != nil {
			say(r.Log, "waiting until nothing is left: %v", err)
			said = time.Now()
		}
		if err == nil || time.Since(begin) > within {
			return out, err
		}
	}
}

// rest warms the daemon up with an event of each kind that is no fault, and records the resources of the idle daemon
// afterwards.
func (r *soakRun) rest(ctx context.Context) (err error) {
	r.begin = time.Now()
	rng := rand.New(rand.NewPCG(r.Seed, 3))
	for _, play := range []func(*rand.Rand) error{r.chat, r.agent, r.storm, r.slow, r.switches} {
		if err := errors.Join(play(rng), ctx.Err()); err != nil {
			return err
		}
	}
	r.idle, err = r.settled(r.Stuck, func(*idle) error { return nil })
	r.ttft, r.itl = nil, nil
	return err
}

// drained reports resources that are left when every client has gone. Goroutines may differ by those of the fabric's
// connections.
func (r *soakRun) drained() error {
	_, err := r.settled(r.Stuck, func(now *idle) error {
		for name, n := range now.descriptors {
			if before, known := r.idle.descriptors[name]; known && n > before {
				return fmt.Errorf("%s has %d descriptors, %d before", name, n, before)
			}
		}
		for name, n := range now.goroutines {
			if before, known := r.idle.goroutines[name]; known && n > before {
				return fmt.Errorf("%s has %d goroutines, %d before", name, n, before)
			}
		}
		return nil
	})
	if err != nil {
		r.rep.Leaked("%v after the last request: %v", r.Stuck, err)
	}
	in, err := r.info()
	for _, m := range in.Models {
		if m.Crashes > 0 {
			r.rep.Broken("%s has crashed %d times", m.Name, m.Crashes)
		}
		r.rep.Count("loads of "+m.Name, m.Loads)
		if lease := m.Info; lease != nil && lease.Lease != nil {
			r.rep.Count("steps of "+m.Name+" without the lease", int(lease.Lease.Without))
		}
	}
	return err
}

// filesAfter checks the snapshot folders after the daemon's end: only complete snapshots, and no more bytes than
// --cache-disk allows.
func (r *soakRun) filesAfter() error {
	models, err := os.ReadDir(r.cache)
	if err != nil {
		return err
	}
	for _, m := range models {
		bytes := int64(0)
		folder := filepath.Join(r.cache, m.Name())
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			bytes += info.Size()
			if name := d.Name(); name != "lock" && !strings.HasSuffix(name, format.Suffix) {
				r.rep.Leaked("the file %s of %s", name, m.Name())
			}
			return nil
		})
		if err != nil {
			return err
		}
		if limit := int64(soakDisk + soakDisk/8); bytes > limit { // with the quarantine
			r.rep.Leaked("%s has %d bytes on disk; the limit is %d", m.Name(), bytes, limit)
		}
	}
	return nil
}
