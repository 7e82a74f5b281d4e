//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestOverhead runs uma-bench overhead, both sides and its client process, for one short round. A prompt that the
// daemon computes for a second, and so could report the progress of, is measured like a short one.
func TestOverhead(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures three servers")
	}
	slow := ggufgen.Tiny()
	slow.Name, slow.Type, slow.Embedding, slow.Layers, slow.Heads, slow.KVHeads, slow.FFN = "ggufgen-slow", ggufgen.F16,
		512, 12, 8, 2, 2048
	for _, c := range []struct {
		name    string
		model   ggufgen.Config
		args    string
		streams int
	}{
		{"short prompts", ggufgen.Tiny(), "--streams 1,3 --tokens 1500", 2},
		{"each stream on its connection", ggufgen.Tiny(), "--streams 3 --tokens 1500 --spread", 1},
		{"a long first step", slow, "--streams 1 --tokens 8 --prompt 120", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			model := ggufgen.Cached(t, c.model)
			t.Setenv("XDG_CACHE_HOME", t.TempDir()) // no step costs were learned yet
			args := append([]string{"overhead", "-m", model, "--rounds", "1", "-t", "1", "--json"},
				strings.Fields(c.args)...)
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), args...)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s%s", err, out, errs.String())
			}
			var rows []struct {
				Streams      int
				Bare, Served struct {
					TokensPerSecond float64 `json:"tokens_per_second"`
				}
				Throughput float64 `json:"throughput_ratio"`
			}
			if err := json.Unmarshal(out, &rows); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			if len(rows) != c.streams {
				t.Fatalf("%d rows: %s", len(rows), out)
			}
			for _, r := range rows {
				if r.Streams < 1 || r.Bare.TokensPerSecond <= 0 || r.Served.TokensPerSecond <= 0 || r.Throughput <= 0 {
					t.Errorf("%d streams: bare %v tokens/s, served %v, ratio %v", r.Streams, r.Bare.TokensPerSecond,
						r.Served.TokensPerSecond, r.Throughput)
				}
			}
		})
	}
}

// measured runs uma-bench run on two sides and returns their reports by side.
func measured(t *testing.T, args ...string) map[string]sideReport {
	t.Helper()
	dir := t.TempDir()
	args = append([]string{"run", "-m", ggufgen.Cached(t, ggufgen.Tiny()), "--repeats", "1", "--quiet", "--out-dir",
		dir}, args...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "ab-report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Reports map[string]sideReport }
	if err := json.Unmarshal(b, &doc); err != nil || len(doc.Reports) != 2 {
		t.Fatalf("%d reports, %v", len(doc.Reports), err)
	}
	sides := map[string]sideReport{}
	for _, r := range doc.Reports {
		sides[r.Side] = r
	}
	return sides
}

// sideReport has the fields of a report that the tests read.
type sideReport struct {
	Side    string
	Errors  int     `json:"n_errors"`
	Prefill float64 `json:"prefill_tokens_per_s"`
	Groups  []struct {
		Name     string
		Requests int `json:"n_requests"`
		Gaps     int `json:"n_itl"`
	}
}

// TestRunComparesOptions: a side has options of uma-serve, here one process against a front, and half of the answers
// have a schema.
func TestRunComparesOptions(t *testing.T) {
	sides := measured(t, "--workload", "schemas", "--streams", "4", "--tokens", "40", "--sides",
		"default:--single,default", "--", "-t", "1")
	for _, side := range []string{"default:--single", "default"} {
		r := sides[side]
		requests := map[string]int{}
		for _, g := range r.Groups {
			requests[g.Name] = g.Requests
		}
		if r.Errors != 0 || requests["free"] != 2 || requests["schema"] != 2 {
			t.Errorf("%s: %+v", side, r)
		}
	}
}

// TestRunStormOnAnotherModel: the chats ask one model and the storm another, with the arbiter between them and without.
func TestRunStormOnAnotherModel(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures for ten seconds")
	}
	file := filepath.Join(t.TempDir(), "two.toml")
	text := fmt.Sprintf("[models.other]\nmodel = '%s'\npinned = true\n", ggufgen.Cached(t, ggufgen.Tiny()))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sides := measured(t, "--workload", "storm", "--prompt-model", "other", "--streams", "1", "--clients", "2",
		"--prompt", "100", "--solo", "500ms", "--storm", "4s", "--sides", "default:--arbiter=false,default", "--",
		"--config", file, "-t", "1")
	for _, side := range []string{"default:--arbiter=false", "default"} {
		r := sides[side]
		requests, gaps := map[string]int{}, map[string]int{}
		for _, g := range r.Groups {
			requests[g.Name], gaps[g.Name] = g.Requests, g.Gaps
		}
		if r.Errors != 0 || requests["prompt"] == 0 || gaps["chat"] == 0 || !(r.Prefill > 0) {
			t.Errorf("%s: %+v", side, r)
		}
	}
}
