package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// ManyModelsConfig configures the measurement of a front with more models than its memory has room for, asked in turn.
type ManyModelsConfig struct {
	File   string // of every model
	Models int
	Room   int      // models that fit within --memory
	Rounds int      // in each of them every model is asked once
	Tokens int      // of each answer
	Args   []string // of the daemon
	Start  func(args ...string) (*daemonproc.Proc, error)
	Log    io.Writer
}

// ManyModels is the result. Resident sets are those of all processes of the daemon together.
type ManyModels struct {
	Models   int `json:"models"`
	Room     int `json:"room"`
	Rounds   int `json:"rounds"`
	Requests int `json:"requests"`
	Refused  int `json:"refused"` // requests that were answered with an error

	LimitBytes   int64 `json:"limit_bytes"`    // --memory
	NeedBytes    int64 `json:"need_bytes"`     // that a model counts with
	CountedBytes int64 `json:"counted_bytes"`  // by the front, the most after a request
	RSSBytes     int64 `json:"peak_rss_bytes"` // pages that processes share count in each
	PSSBytes     int64 `json:"peak_pss_bytes"` // pages that n processes share count as an n-th in each

	Loads     int `json:"loads"`
	Unloads   int `json:"unloads"`
	Crashes   int `json:"crashes"`
	Processes int `json:"max_engine_processes"`
	Loaded    int `json:"engine_processes_at_the_end"`

	FrontEarlyBytes int64 `json:"front_rss_early_bytes"` // of the front's process, after a fifth of the first round
	FrontLateBytes  int64 `json:"front_rss_late_bytes"`  // at the end

	FirstP50Ms float64 `json:"first_token_p50_ms"` // load included
	FirstP95Ms float64 `json:"first_token_p95_ms"`
	Holds      bool    `json:"holds"`
}

// frontGrowth is the allowed growth of the front's resident set, in bytes: Go's heap between two collections.
const frontGrowth = 8 << 20

// judge checks that the limit held, every request was answered, and nothing was left.
func (m *ManyModels) judge() {
	m.Holds = m.Refused == 0 && m.Crashes == 0 && m.CountedBytes <= m.LimitBytes && m.RSSBytes <= m.LimitBytes &&
		m.Loads == m.Unloads+m.Loaded && m.Loads > m.Models && m.FrontLateBytes <= m.FrontEarlyBytes+frontGrowth
}

// RunManyModels asks every model in turn.
func RunManyModels(cfg ManyModelsConfig) (out ManyModels, err error) {
	dir, err := os.MkdirTemp("", "uma-models")
	if err != nil {
		return out, err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(cfg.File)
	if err != nil {
		return out, err
	}
	var tables strings.Builder
	for i := range cfg.Models {
		fmt.Fprintf(&tables, "[models.%s]\nmodel = '%s'\n", modelName(i), file)
	}
	config := filepath.Join(dir, "uma-serve.toml")
	if err := os.WriteFile(config, []byte(tables.String()), 0o600); err != nil {
		return out, err
	}
	out = ManyModels{Models: cfg.Models, Room: cfg.Room, Rounds: cfg.Rounds}
	args := append([]string{"--config", config, "--serve-found=false", "--cache-ram", "0"}, cfg.Args...)
	err = with(cfg.Start, args, func(p *daemonproc.Proc) (err error) {
		out.NeedBytes, err = counted(p)
		return err
	})
	if err != nil {
		return out, fmt.Errorf("ask what a model needs: %w", err)
	}
	out.LimitBytes = out.NeedBytes*int64(cfg.Room) + out.NeedBytes/2
	args = append(args, "--memory", fmt.Sprintf("%db", out.LimitBytes))
	err = with(cfg.Start, args, func(p *daemonproc.Proc) error {
		r := manyModelsRun{cfg: &cfg, p: p, out: &out}
		return r.run()
	})
	out.judge()
	return out, err
}

func modelName(i int) string { return fmt.Sprintf("model-%02d", i) }

// manyModelsRun is the measurement on a running daemon.
type manyModelsRun struct {
	cfg   *ManyModelsConfig
	p     *daemonproc.Proc
	out   *ManyModels
	first []float64 // ms
}

func (r *manyModelsRun) run() error {
	stop := r.watch()
	err := r.ask()
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	l := latency(r.first)
	r.out.FirstP50Ms, r.out.FirstP95Ms = l.P50, l.P95
	return r.settle()
}

// watch samples the memory of the daemon's processes until stop is called.
func (r *manyModelsRun) watch() (stop func() error) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() {
		t := time.NewTicker(sampleEvery)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				pids, err := r.p.Processes()
				rss, err1 := r.p.RSS()
				pss, err2 := r.p.PSS()
				if err := errors.Join(err, err1, err2); err != nil {
					failed = err
					return
				}
				r.out.Processes = max(r.out.Processes, len(pids)-1)
				r.out.RSSBytes, r.out.PSSBytes = max(r.out.RSSBytes, rss), max(r.out.PSSBytes, pss)
			}
		}
	})
	return func() error { close(quit); wg.Wait(); return failed }
}

// sampleEvery is far below the time for which a model is loaded.
const sampleEvery = 10 * time.Millisecond

// ask asks every model in turn, over one connection.
func (r *manyModelsRun) ask() error {
	c, err := dial(r.p.Socket)
	if err != nil {
		return err
	}
	defer c.Close()
	for round := range r.cfg.Rounds {
		for i := range r.cfg.Models {
			if err := r.askOne(c, modelName(i)); err != nil {
				return err
			}
			n, err := counted(r.p)
			if err != nil {
				return err
			}
			r.out.CountedBytes = max(r.out.CountedBytes, n)
			if round == 0 && i == r.cfg.Models/5 {
				if r.out.FrontEarlyBytes, err = daemonproc.RSSOf(r.p.Cmd.Process.Pid); err != nil {
					return err
				}
			}
		}
		say(r.cfg.Log, "round %d: %d requests, %d refused, at most %.0f MiB resident of %.0f", round+1, r.out.Requests,
			r.out.Refused, mib(r.out.RSSBytes), mib(r.out.LimitBytes))
	}
	return nil
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// askOne asks a model for an answer.
func (r *manyModelsRun) askOne(c *conn, model string) error {
	q := defaults
	q.ID, q.Model, q.Prompt, q.MaxTokens, q.Stream, q.Sampling.IgnoreEOS = "q", model, "a", r.cfg.Tokens, true, true
	begin, tokens := time.Now(), 0
	if err := c.send(&q); err != nil {
		return err
	}
	r.out.Requests++
	for {
		ev, err := c.next()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", model, err)
		case ev.Kind == wire.EventError:
			r.out.Refused++
			say(r.cfg.Log, "%s: %s: %s", model, ev.Error.Code, ev.Error.Message)
			return nil
		case ev.Kind == wire.EventToken:
			if tokens++; tokens == 1 {
				r.first = append(r.first, ms(time.Since(begin)))
			}
		case ev.Kind == wire.EventEOS:
			if tokens != r.cfg.Tokens {
				return fmt.Errorf("%s: %d tokens of %d", model, tokens, r.cfg.Tokens)
			}
			return nil
		}
	}
}

// settle reads the front's counters, when no model is being unloaded any more.
func (r *manyModelsRun) settle() (err error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		models, err := servedModels(r.p)
		if err != nil {
			return err
		}
		r.out.Loads, r.out.Unloads, r.out.Crashes, r.out.Loaded = 0, 0, 0, 0
		leaving := false
		for _, m := range models {
			r.out.Loads, r.out.Unloads, r.out.Crashes = r.out.Loads+m.Loads, r.out.Unloads+m.Unloads,
				r.out.Crashes+m.Crashes
			if m.PID != 0 {
				r.out.Loaded++
			}
			leaving = leaving || m.State == "unloading"
		}
		if !leaving || time.Now().After(deadline) {
			break
		}
	}
	r.out.FrontLateBytes, err = daemonproc.RSSOf(r.p.Cmd.Process.Pid)
	return err
}

// servedModels returns the front's info about each model.
func servedModels(p *daemonproc.Proc) ([]wire.InfoServed, error) {
	text, err := p.Ask("info")
	if err != nil {
		return nil, err
	}
	var in wire.Info
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		return nil, fmt.Errorf("info: %w", err)
	}
	if len(in.Models) == 0 {
		return nil, errors.New("the daemon has no front")
	}
	return in.Models, nil
}

// counted returns the memory that the front counts for the models that have a process, or get one.
func counted(p *daemonproc.Proc) (n int64, err error) {
	models, err := servedModels(p)
	for _, m := range models {
		if m.State == "loading" || m.State == "ready" || m.State == "unloading" {
			n += m.MemoryBytes
		}
	}
	return n, err
}
