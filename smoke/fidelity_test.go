//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/untar"
)

// TestFidelityOfUnseenWorkloads simulates the recordings of agent-chain, two-app and long-context again
// (testdata/README.md): the medians of the rounds' errors are within 15 %, with step times fitted to other runs.
func TestFidelityOfUnseenWorkloads(t *testing.T) {
	if testing.Short() {
		t.Skip("it simulates nine recordings")
	}
	dir := untar.Dir(t, filepath.Join("testdata", "fidelity.tar.gz"))
	for _, c := range []struct {
		only, recordings string
		rounds, rows     int
	}{{"agent-chain", "short", 4, 1}, {"two-app", "two", 4, 1}, {"long-context", "long", 1, 1}} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), "fidelity", "--unseen", "--only",
			c.only, "--again", filepath.Join(dir, c.recordings), "--rounds", strconv.Itoa(c.rounds), "--cost",
			"calibration", "--target", "15", "--json")
		out, err := cmd.Output()
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			t.Errorf("%s: %v\n%s%s", c.only, err, out, failed.Stderr)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		var rows []struct {
			Workload string
			Part     bool
			Errors   [4]float64 `json:"errors_percent"`
		}
		if err := json.Unmarshal(out, &rows); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		whole := 0
		for _, r := range rows {
			if r.Part {
				continue
			}
			whole++
			for k, e := range r.Errors {
				if e < -15 || e > 15 || e == 0 {
					t.Errorf("%s: number %d is off by %+.1f %%", r.Workload, k+1, e)
				}
			}
		}
		if whole != c.rows {
			t.Errorf("%d workloads in %s, want %d", whole, out, c.rows)
		}
	}
}
