//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/front"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	uma "github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

var (
	crashes    = flag.Int("crashes", 8, "how often TestEngineCrashesUnderLoad ends an engine process")
	crashModel = flag.String("crash-model", "", "the GGUF `file` of TestEngineCrashesUnderLoad (default: a tiny one)")
)

// crashing is a front in this process, whose engine processes are those of the built program: one that the tests may
// end more often than three times a minute.
type crashing struct {
	*server
	cache string // --cache-dir of both models
}

func startCrashing(t *testing.T, limit int) *crashing {
	t.Helper()
	dir, err := os.MkdirTemp("", "uma")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_CACHE_HOME", dir)
	cache := filepath.Join(dir, "snapshots")
	fs, cfg, _ := config.NewFlagSet()
	if err := fs.Parse([]string{"--socket", filepath.Join(dir, "s"), "-c", "2048", "--cache-ram",
		"8MiB", "--itl-target-ms", "100", "--serve-found=false"}); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Load([]string{"UMA_CONFIG="}); err != nil {
		t.Fatal(err)
	}
	model := cmp.Or(*crashModel, ggufgen.Cached(t, ggufgen.Tiny()))
	for _, name := range []string{"steady", "falls"} {
		cfg.Models = append(cfg.Models, config.Model{Name: name, Model: model, Pinned: true, IdleUnload: -1})
	}
	cfg.CacheDir = cache
	lines, log := cfg.Logger(os.Stderr)
	t.Cleanup(func() { lines.Close(time.Second) })
	if !testing.Verbose() {
		log = slog.New(slog.DiscardHandler)
	}
	stderr, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // processes that are ended write all of their goroutines
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stderr.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	f, err := front.New(ctx, cfg, log, front.Options{Program: filepath.Join(bin, "uma-serve"),
		Args: []string{link.EngineArg}, CrashLimit: limit, Stderr: stderr})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx) }()
	c := &crashing{server: &server{Proc: &daemonproc.Proc{Socket: cfg.Socket}, t: t}, cache: cache}
	t.Cleanup(func() {
		cancel()
		if err := waitfor.Recv(t, "the front ends", done); err != nil {
			t.Error(err)
		}
		c.onlySnapshotsAreLeft()
	})
	return c
}

// quarantine is the folder of snapshots that are damaged.
const quarantine = "quarantine"

// onlySnapshotsAreLeft: the engine processes have left whole snapshots and nothing else.
func (c *crashing) onlySnapshotsAreLeft() {
	files, err := os.ReadDir(filepath.Join(c.cache, "falls"))
	if err != nil {
		c.t.Error(err)
	}
	damaged, err := os.ReadDir(filepath.Join(c.cache, "falls", quarantine))
	if err != nil {
		c.t.Error(err)
	}
	for _, f := range append(files, damaged...) {
		if f.Name() != "lock" && f.Name() != quarantine && !strings.HasSuffix(f.Name(), format.Suffix) {
			c.t.Errorf("%s is left in the cache folder", f.Name())
		}
	}
	if len(damaged) > 0 {
		c.t.Errorf("%d snapshots are damaged", len(damaged))
	}
}

// served returns the front's report of a model.
func (c *crashing) served(name string) reports.InfoServed {
	in := c.info()
	i := slices.IndexFunc(in.Models, func(m reports.InfoServed) bool { return m.Name == name })
	if i < 0 {
		c.t.Fatalf("%s is not served", name)
	}
	return in.Models[i]
}

// stream begins an answer of a model that does not end, and reads its first token.
func (c *crashing) stream(ctx context.Context, to *uma.Client, name string) (*uma.Stream, error) {
	q := wire.DefaultRequest()
	q.Model, q.Prompt, q.Stream, q.Sampling.IgnoreEOS, q.MaxTokens = name, "tell on", true, true, 1<<20
	st, err := to.Stream(ctx, &q)
	if err == nil {
		_, err = st.Next()
	}
	return st, err
}

// answer is an answer of a model to the same question, always.
func (c *crashing) answer(name string) string {
	c.t.Helper()
	to, err := uma.Dial(context.Background(), c.Socket)
	if err != nil {
		c.t.Fatal(err)
	}
	defer to.Close()
	q := wire.DefaultRequest()
	q.Model, q.Prompt, q.Sampling.IgnoreEOS, q.Sampling.Temperature, q.MaxTokens = name, "count to ten", true, 0, 8
	a, err := to.Chat(context.Background(), &q)
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	if a.Reason != wire.Length {
		c.t.Errorf("%s: the answer ended by %v, %+v", name, a.Reason, a.Usage)
	}
	return string(a.Text)
}

// steady reads answers of a model that are not to stop, one after the other, until the returned function is called. It
// returns the longest times between two tokens of an answer, the longest first.
func (c *crashing) steady(name string) (stop func() []time.Duration) {
	to, err := uma.Dial(context.Background(), c.Socket)
	if err != nil {
		c.t.Fatal(err)
	}
	quit, done := make(chan struct{}), make(chan []time.Duration, 1)
	go func() {
		defer to.Close()
		var gaps []time.Duration
		for {
			q := wire.DefaultRequest()
			q.Model, q.Prompt, q.Stream, q.Sampling.IgnoreEOS, q.MaxTokens = name, "tell on", true, true, 1500
			st, err := to.Stream(context.Background(), &q)
			var last time.Time
			for err == nil {
				var ev *wire.Event
				if ev, err = st.Next(); err == nil && ev.Kind == wire.EventToken {
					now := time.Now()
					if !last.IsZero() {
						gaps = append(gaps, now.Sub(last))
					}
					last = now
				}
				select {
				case <-quit:
					slices.SortFunc(gaps, func(a, b time.Duration) int { return cmp.Compare(b, a) })
					done <- gaps
					return
				default:
				}
				if err == nil && ev.Kind == wire.EventEOS {
					break
				}
			}
			if err != nil {
				c.t.Errorf("an answer of the other model ended: %v", err)
				done <- gaps
				return
			}
		}
	}()
	return func() []time.Duration { close(quit); return <-done }
}

// TestEngineCrashesUnderLoad ends an engine process of the built program by SIGKILL and SIGSEGV, again and again, while
// it answers four clients and another model answers one: its clients are told within a second, its next answer is
// right, and nothing is left of it. How long the other model's tokens were apart is told (-v); on a machine that does
// other work it is not judged.
//
//	go test ./smoke -run TestEngineCrashesUnderLoad -v -args -crashes 200 -crash-model model.gguf
func TestEngineCrashesUnderLoad(t *testing.T) {
	const load = 4
	c := startCrashing(t, *crashes+1)
	want, other := c.answer("falls"), c.answer("steady")
	c.settled()
	before, steadyPID := c.info().Live.Descriptors, c.served("steady").PID
	stop := c.steady("steady")
	var told []time.Duration
	for round := range *crashes {
		ends, runs := make(chan error, load), make(chan error, load)
		var clients sync.WaitGroup
		for range load {
			clients.Go(func() {
				to, err := uma.Dial(context.Background(), c.Socket)
				if err != nil {
					runs <- err
					ends <- err
					return
				}
				defer to.Close()
				st, err := c.stream(context.Background(), to, "falls")
				runs <- err
				for err == nil {
					_, err = st.Next()
				}
				ends <- err
			})
		}
		for range load {
			if err := waitfor.Recv(t, "an answer runs", runs); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV}[round%2]
		begun := time.Now()
		if err := syscall.Kill(c.served("falls").PID, sig); err != nil {
			t.Fatal(err)
		}
		for range load {
			err := waitfor.Recv(t, "the clients of the process are told", ends)
			if e, ok := errors.AsType[*uma.ServerError](err); !ok || e.Code != wire.EngineCrashed {
				t.Fatalf("round %d, %v: a client was told %v", round, sig, err)
			}
		}
		told = append(told, time.Since(begun))
		if got := c.answer("falls"); got != want {
			t.Fatalf("round %d, %v: the next answer is %q, not %q", round, sig, got, want)
		}
		clients.Wait()
	}
	gaps := stop()
	slices.Sort(told)
	if worst := told[len(told)-1]; worst > time.Second {
		t.Errorf("clients were told after %v", worst)
	}
	if got := c.answer("steady"); got != other || c.served("steady").PID != steadyPID {
		t.Errorf("the other model answers %q, not %q, or its process is another one", got, other)
	}
	if m := c.served("falls"); m.Crashes != *crashes || m.Loads != *crashes+1 {
		t.Errorf("%d crashes and %d loads are counted, of %d", m.Crashes, m.Loads, *crashes)
	}
	c.settled()
	c.settle(func(in reports.Info) error { // the front may be reading a file or closing a connection just now
		if after := in.Live.Descriptors; after > before {
			return fmt.Errorf("%d descriptors, %d before", after, before)
		}
		return nil
	})
	over := 0
	for _, g := range gaps {
		if g > 200*time.Millisecond {
			over++
		}
	}
	lease := c.served("steady").Info.Lease
	if lease == nil {
		t.Fatal("the other model takes no lease")
	}
	t.Logf("%d crashes; told within %v (median) and %v (worst); the other model: %d tokens, gaps %v (median), %v "+
		"(longest), %d above twice the target of 100 ms; its steps without the lease %d, leases lost %d, repaired %d",
		*crashes, told[len(told)/2], told[len(told)-1], len(gaps),
		gaps[len(gaps)/2], gaps[:min(3, len(gaps))], over,
		lease.Without, lease.Lost, lease.Repaired)
}

// settled waits until no request runs and every cell of both engine processes is free or cached.
func (c *crashing) settled() {
	c.t.Helper()
	c.settle(func(in reports.Info) error {
		if in.Live.Sessions > 1 { // the one that asks
			return fmt.Errorf("%d sessions", in.Live.Sessions)
		}
		for _, m := range in.Models {
			of := m.Info
			if of == nil || m.State != "ready" {
				return fmt.Errorf("%s is %s", m.Name, m.State)
			}
			if l := of.Live; l.Requests != 0 || l.Sequences != 0 || l.Resident != 0 || l.LiveCells != 0 ||
				l.FreeCells != of.ContextTokens() {
				return fmt.Errorf("%s has %+v left", m.Name, l)
			}
		}
		return nil
	})
}
