package main

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/bench"
	results "github.com/uma-serve/uma-serve/bench/report"
)

// TestRecordedReplays: a replay with the flags of a recorded report gives its numbers, within 5 %, and a changed server
// does not. scripts/replay.sh does the same for every recorded policy with the built program, and records anew.
func TestRecordedReplays(t *testing.T) {
	files, err := filepath.Glob("../../bench/replay/testdata/recorded/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d recorded reports, %v", len(files), err)
	}
	file := files[0]
	r, err := results.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for name, value := range r.Environment.Flags {
		flags = append(flags, "--"+name+"="+value)
	}
	replay := func(more ...string) error {
		dir := t.TempDir()
		args := append(append(flags, "--quiet", "--out-dir", dir), more...)
		if err := do(t, runCommand(), args...); err != nil {
			t.Fatal(err)
		}
		return do(t, compareCommand(), file, filepath.Join(dir, "report.json"), "--changed")
	}
	if err := replay(); err != nil {
		t.Errorf("%s: %v\nIf the change is meant: scripts/replay.sh --record", file, err)
	}
	for want, change := range map[string][]string{
		"evicted blocks of think_active went from": {"--cells", "9000"},
		"not replays of the same workload":         {"--requests", "5", "--seed", "5"},
	} {
		if err := replay(change...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s with %v: %v, want %q", file, change, err, want)
		}
	}
}

// TestFidelityRounds: the table of several rounds has the median of each number and of the rounds' errors, which is not
// the error of the medians, with the least and the most of them. The rounds stay as they are.
func TestFidelityRounds(t *testing.T) {
	row := func(real, simulated float64) []fidelityRow {
		r := fidelityRow{Workload: "two-app",
			Real:      bench.Seen{TTFTP50: real, TTFTP95: 2 * real, ITLP50: 3 * real, ITLP95: 4 * real},
			Simulated: bench.Seen{TTFTP50: simulated, TTFTP95: 2 * simulated, ITLP50: 3 * simulated}}
		r.Simulated.ITLP95 = 4 * simulated
		for k, c := range r.cells() {
			r.Errors[k] = deviation(c)
		}
		return []fidelityRow{r}
	}
	all := func(x float64) *[4]float64 { return &[4]float64{x, x, x, x} }
	rounds := [][]fidelityRow{row(10, 15), row(40, 20), row(20, 25)} // +50, -50, +25 %
	want := row(20, 20)
	want[0].Errors, want[0].Least, want[0].Most = *all(25), all(-50), all(50)
	if got := medianRows(rounds); !reflect.DeepEqual(got, want) {
		t.Errorf("the median is %+v, want %+v", got, want)
	}
	if worst := worstError(want); worst != 25 {
		t.Errorf("the worst error is %v, want 25", worst)
	}
	want = row(25, 17.5)
	want[0].Errors, want[0].Least, want[0].Most = *all(0), all(-50), all(50)
	if got := medianRows(rounds[:2]); !reflect.DeepEqual(got, want) {
		t.Errorf("the median of two rounds is %+v, want %+v", got, want)
	}
	if !reflect.DeepEqual(rounds[0], row(10, 15)) {
		t.Errorf("the first round has become %+v", rounds[0])
	}
	if err := do(t, fidelityCommand(), "--rounds", "0"); err == nil || !strings.Contains(err.Error(), "--rounds is 0") {
		t.Errorf("--rounds 0: %v", err)
	}
}

// TestFidelityNamesItsWorkloads: --only takes the names of the chosen three.
func TestFidelityNamesItsWorkloads(t *testing.T) {
	for want, args := range map[string][]string{
		"decode-sweep, storm, shared-prefix": {"--only", "two-app", "--again", t.TempDir()},
		"agent-chain, two-app, long-context": {"--unseen", "--only", "storm", "--again", t.TempDir()},
	} {
		if err := do(t, fidelityCommand(), args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
