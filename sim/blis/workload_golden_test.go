package blis_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/sim"
	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestGoldenWorkloads generates what BLIS's command line generated, serves it, and compares the exported
// trace line by line and the printed metrics number by number.
func TestGoldenWorkloads(t *testing.T) {
	specOf := func(name string) *workload.Spec {
		s, err := workload.ParseSpec(golden()["workload/"+name+".yaml"])
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	distribution := workload.DefaultDistribution()
	distribution.Rate, distribution.Requests = 5, 50
	chatbot := workload.DefaultDistribution()
	chatbot.Rate, chatbot.Requests = 2, 50
	if err := chatbot.Preset("chatbot"); err != nil {
		t.Fatal(err)
	}
	of := func(d workload.Distribution) *workload.Spec {
		s, err := d.Spec()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, c := range []struct {
		name string
		spec *workload.Spec
	}{
		{"distribution_default", of(distribution)}, {"preset_chatbot", of(chatbot)},
		{"gamma_cv2_exponential", specOf("gamma_cv2_exponential")}, {"poisson_gaussian", specOf("poisson_gaussian")},
		{"two_clients_prefix", specOf("two_clients_prefix")},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows, err := workload.Collect(c.spec.New(), 0)
			if err != nil {
				t.Fatal(err)
			}
			cfg := blis.DefaultConfig()
			cfg.Beta, cfg.Alpha = []float64{1000, 10, 5}, []float64{100, 1, 100}
			// as BLIS's multi-instance driver, which the command line uses
			cfg.StrictHorizon, cfg.DeferBatch = true, true
			rep, err := blis.Run(cfg, workload.NewList(rows))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := rep.WriteTrace(&out); err != nil {
				t.Fatal(err)
			}
			got, want := strings.Split(out.String(), "\n"),
				strings.Split(string(golden()["workload/"+c.name+".out.csv"]), "\n")
			if len(got) != len(want) {
				t.Fatalf("%d lines, want %d", len(got), len(want))
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("line %d:\n got %s\nwant %s", i+1, got[i], want[i])
				}
			}
			compareBLIS(t, rep, golden()["workload/"+c.name+".metrics.json"])

			// The exported trace, read again, is the same workload (INV-13).
			again, err := workload.ReadTraceV2(bytes.NewReader(golden()["workload/"+c.name+".out.csv"]))
			if err != nil {
				t.Fatal(err)
			}
			replayed, err := blis.Run(cfg, workload.NewList(again))
			if err != nil {
				t.Fatal(err)
			}
			var a, b bytes.Buffer
			if err := rep.WriteJSON(&a); err != nil {
				t.Fatal(err)
			}
			if err := replayed.WriteJSON(&b); err != nil {
				t.Fatal(err)
			}
			if a.String() != b.String() {
				t.Error("INV-13: replaying the exported trace gives other numbers")
			}
		})
	}
}

// compareBLIS compares with the metrics file of BLIS's command line.
func compareBLIS(t *testing.T, rep *sim.Report, want []byte) {
	t.Helper()
	if len(want) == 0 {
		return
	}
	var buf bytes.Buffer
	if err := rep.WriteMetrics(&buf, "cluster"); err != nil {
		t.Fatal(err)
	}
	var g, w map[string]any
	if err := json.Unmarshal(buf.Bytes(), &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	// These runs are of BLIS's earlier build, which did not count the token that comes with the prefill.
	w["total_output_tokens"] = w["total_output_tokens"].(float64) + w["completed_requests"].(float64)
	w["tokens_per_sec"] = w["total_output_tokens"].(float64) / w["vllm_estimated_duration_s"].(float64)
	compare("", g, w, func(path, msg string) { t.Error(fmt.Sprint(path, ": ", msg)) })
}

// TestTraceV2OfCases replays the cases that exist as TraceV2, too: the same requests, but for budgets and names.
func TestTraceV2OfCases(t *testing.T) {
	n := 0
	for name, data := range golden() {
		base, ok := strings.CutSuffix(name, "/tracev2.csv")
		if !ok {
			continue
		}
		n++
		if _, err := workload.ParseTraceHeader(golden()[base+"/tracev2.yaml"]); err != nil {
			t.Fatal(err)
		}
		v2, err := workload.ReadTraceV2(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		v1, err := workload.ReadCSV(bytes.NewReader(golden()[base+"/trace.csv"]))
		if err != nil {
			t.Fatal(err)
		}
		if len(v1) != len(v2) {
			t.Fatalf("%s: %d and %d rows", base, len(v1), len(v2))
		}
		for i := range v1 {
			a, b := v1[i], v2[i]
			if a.ID() != b.ID() || a.Arrival != b.Arrival || a.Input != b.Input || a.Output != b.Output ||
				a.Deadline != b.Deadline || a.Prefix != b.Prefix || a.PrefixLen != b.PrefixLen {
				t.Fatalf("%s row %d:\n%+v\n%+v", base, i, a, b)
			}
		}
	}
	if n < 10 {
		t.Fatalf("only %d TraceV2 files found", n)
	}
}
