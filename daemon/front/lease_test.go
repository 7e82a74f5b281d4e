package front

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/shm/lease"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// inside counts the engine processes that compute, in memory that they share.
type inside struct{ now, most, steps atomic.Int64 }

// insideOf maps the counts of the models in a folder.
func insideOf(dir string) (*inside, error) {
	f, err := os.OpenFile(filepath.Join(dir, "inside"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*inside)(unsafe.Pointer(&mem[0])), nil
}

// oneAtATime takes the time of a step and counts the processes that do at once.
func oneAtATime(dir string, take func(time.Duration)) (func(time.Duration), error) {
	in, err := insideOf(dir)
	if err != nil {
		return nil, err
	}
	return func(d time.Duration) {
		n := in.now.Add(1)
		for most := in.most.Load(); n > most && !in.most.CompareAndSwap(most, n); most = in.most.Load() {
		}
		take(d)
		in.steps.Add(1)
		in.now.Add(-1)
	}, nil
}

// streamOf begins an endless answer and reads its first token.
func (r *running) streamOf(model string) *wireclient.Stream {
	r.t.Helper()
	st, err := r.dial().Stream(context.Background(), endless(model))
	if err == nil {
		_, err = st.Next()
	}
	if err != nil {
		r.t.Fatalf("%s: %v", model, err)
	}
	return st
}

// more reads n tokens of an answer.
func more(t *testing.T, st *wireclient.Stream, n int) {
	t.Helper()
	for range n {
		if ev, err := st.Next(); err != nil || ev.Kind == wire.EventEOS {
			t.Fatalf("the answer has ended: %+v, %v", ev, err)
		}
	}
}

func (r *running) get(path string, into any) {
	r.t.Helper()
	status, text := r.http().do("GET", path, "")
	if status != http.StatusOK {
		r.t.Fatalf("%s: %d %s", path, status, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
}

// modelDir is the folder of the models that start has made.
func (r *running) modelDir() string { return filepath.Dir(r.cfg.Models[0].Model) }

// TestModelsComputeInTurn: of two models with running answers one at a time computes, and both come to their steps.
// Health, info, metrics and why say so.
func TestModelsComputeInTurn(t *testing.T) {
	r := start(t, Options{}, []string{"turns-a", "turns-b"}, nil, "--sandbox=false")
	a, b := r.streamOf("turns-a"), r.streamOf("turns-b")
	for range 20 {
		more(t, a, 5)
		more(t, b, 5)
	}
	in, err := insideOf(r.modelDir())
	if err != nil {
		t.Fatal(err)
	}
	if in.steps.Load() < 200 || in.most.Load() != 1 {
		t.Errorf("%d steps, at most %d at once", in.steps.Load(), in.most.Load())
	}

	var h reports.Health
	r.get("/health", &h)
	if h.Arbiter == nil || h.Arbiter.Status != "ok" || len(h.Arbiter.Devices) != 1 ||
		h.Arbiter.Devices[0].Device != "cpu" {
		t.Errorf("%+v", h.Arbiter)
	}
	waitfor.True(t, "health names the model that computes", func() bool {
		var h reports.Health
		r.get("/health", &h)
		return strings.HasPrefix(h.Arbiter.Devices[0].Holder, "turns-")
	})
	var info reports.Info
	r.get("/info", &info)
	for _, m := range info.Models {
		if l := m.Info.Lease; l == nil || l.Grants < 100 || l.Contended == 0 || l.WaitedMs <= 0 || l.HeldMs <= 0 ||
			l.Without != 0 || l.Lost != 0 || l.Repaired != 0 || fmt.Sprint(l.Devices) != "[cpu]" {
			t.Errorf("%s: %+v", m.Name, l)
		}
	}
	var doc struct {
		Models map[string]struct {
			Leases    int `json:"device_leases_total"`
			Contended int `json:"device_leases_contended_total"`
			Wait      struct {
				Count int `json:"count"`
			} `json:"device_wait_ms"`
		} `json:"models"`
	}
	if err := r.jsonMetrics(&doc); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"turns-a", "turns-b"} {
		if m := doc.Models[n]; m.Leases < 100 || m.Contended == 0 || m.Wait.Count == 0 {
			t.Errorf("%s: %+v", n, m)
		}
	}
	var why reports.WhyReport
	r.get("/why?last=10", &why)
	text := fmt.Sprint(why)
	if len(why.Requests) != 2 || !strings.Contains(text, "device_wait") ||
		!strings.Contains(text, "the last time turns-a") || !strings.Contains(text, "the last time turns-b") {
		t.Errorf("%s", text)
	}
}

// jsonMetrics asks for the metrics over frames.
func (r *running) jsonMetrics(into any) error {
	b, err := r.dial().Metrics(context.Background())
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// TestWithoutArbiter: with --arbiter=false, and with one model, no lease is taken.
func TestWithoutArbiter(t *testing.T) {
	r := start(t, Options{}, []string{"turns-a", "turns-b"}, nil, "--sandbox=false", "--arbiter=false")
	a, b := r.streamOf("turns-a"), r.streamOf("turns-b")
	in, err := insideOf(r.modelDir())
	if err != nil {
		t.Fatal(err)
	}
	for in.most.Load() < 2 {
		more(t, a, 1)
		more(t, b, 1)
	}
	var h reports.Health
	r.get("/health", &h)
	var info reports.Info
	r.get("/info", &info)
	if h.Arbiter != nil || info.Models[0].Info.Lease != nil {
		t.Errorf("%+v, %+v", h.Arbiter, info.Models[0].Info.Lease)
	}
	one := start(t, Options{}, []string{"one"}, nil, "--serve-found=false")
	if one.leases != nil {
		t.Error("a front that can have one model only has a table of leases")
	}
}

// TestPromptsOfOneModelMakeWayForAnswersOfAnother: a long prompt is computed in chunks that leave the other model's
// answer its time; alone it is not.
func TestPromptsOfOneModelMakeWayForAnswersOfAnother(t *testing.T) {
	r := start(t, Options{}, []string{"turns-a", "turns-b"}, nil, "--sandbox=false", "--itl-target-ms", "20",
		"--no-prefix-cache")
	long := request("turns-b", func(q *wire.Request) {
		q.Messages, q.Prompt, q.MaxTokens = nil, strings.Repeat("many words ", 250), 1
	})
	ask := func() (largest int, text string) {
		t.Helper()
		c := r.dial()
		if _, err := whole(c, long); err != nil {
			t.Fatal(err)
		}
		why, err := c.Why(context.Background(), wire.WhyQuestion{Last: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range why.Requests[0].Decisions {
			if strings.HasPrefix(d.Reason, "prefill_") {
				largest = max(largest, d.Tokens/d.Times)
			}
		}
		return largest, fmt.Sprint(why)
	}
	for range 3 { // until the cost model has learned
		ask()
	}
	alone, text := ask()
	if strings.Contains(text, "prefill_others") {
		t.Errorf("alone: %s", text)
	}
	a := r.streamOf("turns-a")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, err := a.Next(); err != nil {
				return
			}
		}
	}()
	beside, text := ask()
	if !strings.Contains(text, "prefill_others") || beside >= alone {
		t.Errorf("chunks of %d tokens beside an answer, %d alone: %s", beside, alone, text)
	}
	var doc struct {
		Models map[string]struct {
			Yields int `json:"device_yields_total"`
		} `json:"models"`
	}
	if err := r.jsonMetrics(&doc); err != nil || doc.Models["turns-b"].Yields == 0 ||
		doc.Models["turns-a"].Yields != 0 {
		t.Errorf("%+v, %v", doc, err)
	}
	_ = a.Cancel()
	<-done
}

// TestHolderIsKilledWithinItsStep: the lease passes on at once when the process that holds it is killed.
func TestHolderIsKilledWithinItsStep(t *testing.T) {
	r := start(t, Options{}, []string{"slow-a", "slow-b"}, nil)
	pid := r.awaitReady("slow-a")
	b := r.streamOf("slow-b")
	a := r.streamOf("slow-a")
	waitfor.True(t, "the model computes", func() (holds bool) {
		r.call(func() {
			v := r.leases.Views()
			if holds = len(v) > 0 && v[0].Holder == "slow-a"; holds {
				// the front takes no lease back before this function ends
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
		return holds
	})
	for {
		if _, err := a.Next(); err != nil {
			if code(err) != wire.EngineCrashed {
				t.Errorf("the killed model's client is told %v", err)
			}
			break
		}
	}
	more(t, b, 50)
	var info reports.Info
	r.get("/info", &info)
	for _, m := range info.Models {
		if m.Name == "slow-b" && m.Info.Lease.Without != 0 {
			t.Errorf("%+v", m.Info.Lease)
		}
	}
	r.awaitReadyByAsking("slow-a")
	if got, err := whole(r.dial(), request("slow-a", nil)); err != nil || got != "I am slow-a" {
		t.Errorf("the next answer is %q, %v", got, err)
	}
}

// TestStepThatDoesNotEnd: the other models go on without the lease, and health says so.
func TestStepThatDoesNotEnd(t *testing.T) {
	t.Parallel() // it waits for most of its time
	r := start(t, Options{}, []string{"stuck", "one"}, nil, "--step-timeout", "0s")
	if got, err := whole(r.dial(), request("one", nil)); err != nil || got != "I am one" {
		t.Fatalf("%q, %v", got, err)
	}
	st, err := r.dial().Stream(context.Background(), endless("stuck"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	pid := r.awaitReady("stuck")
	defer syscall.Kill(pid, syscall.SIGKILL) // it would not end by itself
	waitfor.True(t, "the model computes", func() (holds bool) {
		r.call(func() { v := r.leases.Views(); holds = v[0].Holder == "stuck" })
		return holds
	})
	if got, err := whole(r.dial(), request("one", nil)); err != nil || got != "I am one" {
		t.Fatalf("%q, %v", got, err)
	}
	var h reports.Health
	r.get("/health", &h)
	if h.Arbiter.Status != "degraded" || !strings.Contains(h.Arbiter.Text, "model one has computed") ||
		h.Arbiter.Devices[0].HeldMs < float64(lease.HoldLimit.Milliseconds()) {
		t.Errorf("%+v", h.Arbiter)
	}
	var why reports.WhyReport
	r.get("/why?last=1", &why)
	if text := fmt.Sprint(why); !strings.Contains(text, "did not pass the lease on") {
		t.Error(text)
	}
}
