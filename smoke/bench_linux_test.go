//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestOverhead runs uma-bench overhead, both sides and its client process, for one short round. A prompt that the
// daemon computes for a second, and so could report the progress of, is measured like a short one.
func TestOverhead(t *testing.T) {
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

// TestFrontCost runs uma-bench front for one short round.
func TestFrontCost(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), "front", "-m",
		ggufgen.Cached(t, ggufgen.Tiny()), "--rounds", "1", "--tokens", "1500", "--streams", "1,3", "--first", "5",
		"--json")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs.String())
	}
	var rep bench.FrontReport
	if err := json.Unmarshal(out, &rep); err != nil || len(rep.Rows) != 2 {
		t.Fatalf("%v in %s", err, out)
	}
	for _, r := range rep.Rows {
		if r.Single.TokensPerSecond <= 0 || r.Front.TokensPerSecond <= 0 || r.Throughput <= 0 || r.ITLp95 <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if f := rep.First; f.Pairs != 5 || f.SingleMs <= 0 || f.FrontMs <= 0 {
		t.Errorf("%+v", f)
	}
}

// TestManyModels runs uma-bench models for one round of a few models.
func TestManyModels(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), "models", "-m",
		ggufgen.Cached(t, ggufgen.Tiny()), "--models", "6", "--room", "2", "--rounds", "2", "--json", "--", "-t", "1",
		"-c", "256")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs.String())
	}
	var m bench.ManyModels
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if !m.Holds || m.Requests != 12 || m.Refused != 0 || m.Loads < 12 || m.Processes < 2 || m.Processes > 3 ||
		m.PSSBytes <= 0 || m.PSSBytes > m.RSSBytes || m.CountedBytes <= m.NeedBytes || m.FirstP50Ms <= 0 {
		t.Errorf("%+v", m)
	}
	for _, args := range [][]string{{"--models", "4"}, {"--room", "0"}, {"--rounds", "0"}, {"--tokens", "0"}} {
		args = append([]string{"models"}, args...)
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), args...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), args[1]) {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}
