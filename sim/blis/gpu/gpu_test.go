package gpu

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/sim/latency"
)

const dense = `{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, 
	"intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16", "max_position_embeddings": 8192 %s}`

func shape(t *testing.T, more, name string) Shape {
	t.Helper()
	if more != "" {
		more = ", " + more
	}
	s, err := ParseShape([]byte(strings.Replace(dense, "%s", more, 1)), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseShape(t *testing.T) {
	for _, c := range []struct {
		more, name string
		want       float64
	}{
		{"", "", 2},
		{`"quantization_config": {"bits": 4}`, "", 0.5},
		{`"quantization_config": {"bits": "8"}`, "", 1},
		{`"quantization_config": {"quant_method": "fp8"}`, "", 1},
		{`"quantization_config": {"config_groups": {"group_1": {"weights": {"num_bits": 2}}, "group_0": {"weights": ` +
			`{"num_bits": 4}}}}`, "", 0.5},
		{"", "llama-w8a8", 1}, {"", "llama-w4a16-x", 0.5}, {"", "Llama-FP8-dynamic", 1}, {"", "nofp8here", 2},
	} {
		if s := shape(t, c.more, c.name); s.WeightBytes != c.want || s.Bytes != 2 {
			t.Errorf("%s %s: %v bytes a weight, want %v", c.more, c.name, s.WeightBytes, c.want)
		}
	}
	s := shape(t, `"text_config": {"num_hidden_layers": 5, "num_experts": 16, "num_experts_per_tok": 2, `+
		`"moe_intermediate_size": 100, "n_shared_experts": 3}`, "")
	if s.Layers != 5 || !s.MoE() || s.Experts != 16 || s.SharedDim != 300 || s.expertDim() != 100 {
		t.Errorf("%+v", s)
	}
	if s, err := ParseShape([]byte(`{"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}`),
		""); err != nil || s.KVHeads != 2 || s.Intermediate != 32 {
		t.Errorf("defaults: %+v, %v", s, err)
	}
	for _, bad := range []string{`[]`, `{}`, `{"num_hidden_layers": -1, "hidden_size": 8, "num_attention_heads": 2}`,
		`{"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "torch_dtype": "float7"}`,
		`{"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "num_local_experts": 8}`} {
		if _, err := ParseShape([]byte(bad), ""); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
	for field, json := range map[string]string{
		"num_key_value_heads":             `"num_key_value_heads": -8`,
		"intermediate_size":               `"intermediate_size": -1`,
		"vocab_size":                      `"vocab_size": -1`,
		"num_local_experts":               `"num_local_experts": 1e9, "num_experts_per_tok": 1`,
		"moe_intermediate_size":           `"moe_intermediate_size": 1e300`,
		"shared_expert_intermediate_size": `"n_shared_experts": 1125899906842624, "moe_intermediate_size": 16384`,
		"max_position_embeddings":         `"max_position_embeddings": -2`,
		"original_max_position_embeddings": `"rope_scaling": {"type": "yarn", "factor": 4, ` +
			`"original_max_position_embeddings": -1}`,
		"rope_scaling.factor": `"rope_scaling": {"type": "linear", "factor": "Inf"}`,
		"num_experts_per_tok": `"num_experts_per_tok": -5`,
		"bits: must be":       `"quantization_config": {"bits": 1e9}`,
	} {
		_, err := ParseShape([]byte(strings.Replace(dense, "%s", ", "+json, 1)), "")
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v, want an error that names %s", json, err, field)
		}
	}
}

func TestMaxModelLen(t *testing.T) {
	for more, want := range map[string]int{
		"": 8192, `"rope_scaling": {"type": "linear", "factor": 4}`: 32768,
		`"rope_scaling": {"rope_type": "llama3", "factor": 4}`:                                    8192,
		`"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 4096}`: 16384,
		`"model_type": "gemma3_text", "rope_scaling": {"type": "linear", "factor": 4}`:            8192,
	} {
		if got := MaxModelLen(shape(t, more, ""), 1<<20, 16); got != want {
			t.Errorf("%s: %d, want %d", more, got, want)
		}
	}
}

// TestFittedModels checks the shipped coefficients' formulas by hand.
func TestFittedModels(t *testing.T) {
	s := shape(t, "", "")
	m, err := NewCrossModel(nil, nil, s, 2)
	if err != nil {
		t.Fatal(err)
	}
	// 116.110·32 + 1226.868·10·(32·8·128/2·1e-6) + 9445.157, no MoE term.
	if got := m.Step(&latency.Batch{PrefillTokens: 100, DecodeTokens: 10}); got != 13361 || m.Enqueue(5) != 13732 ||
		m.Token() != 860 {
		t.Errorf("crossmodel: step %d, enqueue %d, token %d", got, m.Enqueue(5), m.Token())
	}
	r, err := NewTrainedRoofline(nil, nil, s, GPUs["H100"], 1, AllReduce{})
	if err != nil {
		t.Fatal(err)
	}
	one := r.Step(&latency.Batch{Requests: 1, Items: []latency.Item{{Context: 100, New: 1}}})
	two := r.Step(&latency.Batch{Requests: 2, Items: []latency.Item{{Context: 100, New: 1}, {Context: 100, New: 1}}})
	long := r.Step(&latency.Batch{Requests: 1, Items: []latency.Item{{New: 2048, Prefill: true}}})
	// Reading 14 GB of weights at 3.35 TB/s takes over 4 ms; a second request adds 48.8 us and its KV traffic.
	if one < 4000 || one > 8000 || two-one < 48 || two-one > 80 || long < 20000 || r.Finish() != 1849 ||
		r.Token() != 1 || r.Enqueue(9) != 9315 {
		t.Errorf("trained-roofline: %d, %d, %d us; finish %d", one, two, long, r.Finish())
	}
}

func TestPublished(t *testing.T) {
	if n := len(Published()); n != 111 {
		t.Errorf("%d fits, want 111", n)
	}
	f, err := FindFit("Meta-Llama/Llama-3.1-8B-Instruct", "H100", 1, "")
	if err != nil || f.Blocks != 29205 || f.Beta[0] < 6471 || f.Beta[0] > 6473 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, f := range Published() {
		if _, err := latency.NewBlackbox(f.Alpha, f.Beta); err != nil {
			t.Errorf("%s: %v", f.Model, err)
		}
	}
	if _, err := FindFit("meta-llama/llama-3.1-8b-instruct", "B200", 1, ""); err == nil ||
		!strings.Contains(err.Error(), "there are some on") {
		t.Errorf("err = %v", err)
	}
}

func TestFindGPU(t *testing.T) {
	table, err := ParseGPUs([]byte(
		`{"X": {"TFlopsPeak": 1, "BwPeakTBs": 1, "mfuPrefill": 0.5, "mfuDecode": 0.5, "MemoryGiB": 9}, "Y": ` +
			`{"TFlopsPeak": 1}}`))
	if err != nil {
		t.Fatal(err)
	}
	if g, err := FindGPU(table, "X"); err != nil || g.MemoryGiB != 9 {
		t.Errorf("%+v, %v", g, err)
	}
	for _, name := range []string{"Y", "Z"} {
		if _, err := FindGPU(table, name); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func FuzzParseShape(f *testing.F) {
	f.Add([]byte(strings.Replace(dense, "%s", "", 1)))
	f.Add([]byte(strings.Replace(dense, "%s", `, "num_key_value_heads": -32184, "n_shared_experts": 1e18`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseShape(data, "x-w4a16")
		if err != nil {
			return
		}
		m, err := NewRoofline([]float64{0, 0, 0}, s, GPUs["H100"], 1, RooflineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d := m.Step(&latency.Batch{Items: []latency.Item{{New: 10, Prefill: true}, {Context: 10, New: 1}}}); d < 1 {
			t.Errorf("a step of %d us", d)
		}
		if n := MaxModelLen(s, 1000, 16); n < 0 {
			t.Errorf("a sequence of %d tokens", n)
		}
		if n, err := KVBlocks(s, GPUs["H100"], 1, 0.9, 16); err == nil && n < 1 {
			t.Errorf("%d blocks", n)
		}
	})
}
