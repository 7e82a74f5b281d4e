//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/bench/soak"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestSoak plays the first events of a soak test, one of each kind, on the built programs.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("a soak test, if a short one")
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), "soak", "--minutes", "0.05", "--rate",
		"400", "--sample", "500ms", "--fault", "200ms", "--stuck", waitfor.Limit.String(), "--json")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs.String())
	}
	var res soak.Result
	if err := json.Unmarshal(out, &res); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if res.Mode != "real" || !res.Passed() {
		t.Errorf("%+v", res)
	}
	_, noRedis := exec.LookPath("redis-server")
	_, noValkey := exec.LookPath("valkey-server")
	for k := range soak.Kinds {
		if n := res.Events[k.String()]; n == 0 && !(k == soak.FabricFault && noRedis != nil && noValkey != nil) {
			t.Errorf("there was no %v", k)
		}
	}
	for _, name := range []string{"RSS of front", "RSS of steady", "descriptors of other", "cells in use",
		"snapshot files", "memory ledger", "queue", "p99 of ITL"} {
		if !slices.ContainsFunc(res.Rows, func(r soak.Row) bool { return r.Name == name }) {
			t.Errorf("%s was not sampled", name)
		}
	}
	if res.Counts["answers"] < 20 || res.Counts["loads of other"] == 0 {
		t.Errorf("%v", res.Counts)
	}
}

// TestSoakFinds: a model that crashes, and answers that change, are found.
func TestSoakFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("a soak test, if a short one")
	}
	var p *daemonproc.Proc
	var once sync.Once
	cfg := bench.SoakConfig{Length: 2 * time.Second, Sample: 200 * time.Millisecond, PerMinute: 300,
		Stuck: waitfor.Limit, Fault: 100 * time.Millisecond, Seed: 2, Questions: []string{"one", "two"},
		Model: ggufgen.Cached(t, ggufgen.Tiny()), Other: ggufgen.Cached(t, ggufgen.Tiny())}
	cfg.Start = func(args ...string) (*daemonproc.Proc, error) {
		var err error
		p, err = daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit, nil, args...)
		return p, err
	}
	cfg.Sampled = func() {
		once.Do(func() {
			if pids, err := p.Processes(); err != nil || syscall.Kill(pids[1], syscall.SIGKILL) != nil {
				t.Errorf("%v, %v", pids, err)
			}
		})
	}
	res, err := bench.RunSoak(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(res.Failures, "\n"); !strings.Contains(all, "has crashed 1 times") {
		t.Errorf("the crash is not among %q", all)
	}
}
