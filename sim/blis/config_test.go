package blis_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/blis/gpu"
	"github.com/uma-serve/uma-serve/sim/latency"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// TestConfigErrors: each message names the field.
func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ json, want string }{
		{`{`, "line 1"},
		{`{"max_num_running_reqs": "x"}`, "max_num_running_reqs"},
		{`{"max_num_running_reqs": 0}`, "max_num_running_reqs"},
		{`{"max_num_scheduled_tokens": -1}`, "max_num_scheduled_tokens"},
		{`{"block_size_in_tokens": 0}`, "block_size_in_tokens"},
		{`{"max_model_len": 1000, "total_kv_blocks": 3}`, "too small for max_model_len"},
		{`{"scheduler": "lifo"}`, "valid are fcfs"},
		{`{"priority_policy": "x"}`, "priority_policy"},
		{`{"kv_cpu_blocks": 3, "kv_offload_threshold": 2}`, "kv_offload_threshold"},
		{`{"kv_cpu_blocks": 3, "kv_transfer_bandwidth": 0}`, "kv_transfer_bandwidth"},
		{`{"horizon_us": -4}`, "horizon_us"},
		{`{"beta_coeffs": [1]}`, "beta_coeffs"},
		{`{"beta_coeffs": [1,2,3], "alpha_coeffs": [1,2]}`, "alpha_coeffs"},
		{`{"beta_coeffs": [1,2,-3]}`, "beta_coeffs[2]"},
		{`{"latency_model": "roofline"}`, "config.json"},
		{`{"latency_model": "calibrated"}`, "cost model"},
		{`{"batch_formation": "uma", "policy": "zz", "beta_coeffs": [1,2,3]}`, "zz"},
	} {
		cfg, _, err := blis.ReadConfig([]byte(c.json), "")
		if err == nil {
			_, err = blis.Run(cfg, workload.NewList([]workload.Request{{Input: 1, Output: 1}}))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.json, err, c.want)
		}
	}
	if _, unknown, err := blis.ReadConfig([]byte(`{"max_runing": 3}`), ""); err != nil || len(unknown) != 1 ||
		unknown[0] != "max_runing" {
		t.Errorf("unknown keys %v, err %v", unknown, err)
	}
}

// TestRooflineWorked are the worked values of two Llama-3.1-8B steps on an H100, and the sizes of its cache.
func TestRooflineWorked(t *testing.T) {
	dir := goldenDir(t)
	shape := func(name string) gpu.Shape {
		data, err := os.ReadFile(filepath.Join(dir, "models", name))
		if err != nil {
			t.Fatal(err)
		}
		s, err := gpu.ParseShape(data, name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	llama, mixtral := shape("llama31-8b.json"), shape("mixtral-8x7b.json")
	m, err := gpu.NewRoofline([]float64{0, 0, 0}, llama, gpu.GPUs["H100"], 1, gpu.RooflineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		items []latency.Item
		want  int64
	}{
		{[]latency.Item{{New: 280, Prefill: true}}, 6460},
		{[]latency.Item{{Context: 281, New: 1}, {Context: 138, New: 1}}, 3061},
		{nil, 1},
	} {
		if got := m.Step(&latency.Batch{Items: c.items}); got != c.want {
			t.Errorf("%v: %d us, want %d", c.items, got, c.want)
		}
	}
	slower, err := gpu.NewRoofline([]float64{0, 0, 0}, llama, gpu.GPUs["H100"], 2,
		gpu.RooflineOptions{TwoPhase: true, AllReduce: gpu.AllReduce{GBs: 100}, LayerOverhead: 5})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gpu.NewRoofline([]float64{0, 0, 0}, llama, gpu.GPUs["H100"], 2, gpu.RooflineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	mixed := &latency.Batch{Items: []latency.Item{{New: 280, Prefill: true}, {Context: 100, New: 1}}}
	if a, b := plain.Step(mixed), slower.Step(mixed); b < a+32*5 {
		t.Errorf("%d us without, %d with overheads", a, b)
	}
	for _, c := range []struct {
		shape gpu.Shape
		card  string
		tp    int
		want  int
	}{{llama, "H100", 1, 26312}, {llama, "A100-SXM", 2, 125278}, {llama, "L40S", 1, 11567},
		{mixtral, "H100", 2, 48956}} {
		got, err := gpu.KVBlocks(c.shape, gpu.GPUs[c.card], c.tp, 0.9, 16)
		if err != nil || got != c.want {
			t.Errorf("%s TP%d: %d blocks (%v), want %d", c.card, c.tp, got, err, c.want)
		}
	}
	if _, err := gpu.KVBlocks(mixtral, gpu.GPUs["H100"], 1, 0.9, 16); err == nil ||
		!strings.Contains(err.Error(), "do not leave room") {
		t.Errorf("Mixtral on one H100: %v", err)
	}
	if n := gpu.MaxModelLen(llama, 26312, 16); n != 131072 {
		t.Errorf("max model length %d", n)
	}
	if n := gpu.MaxModelLen(llama, 100, 16); n != 1600 {
		t.Errorf("max model length %d, want the cache's 1600", n)
	}
}
