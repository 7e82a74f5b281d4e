package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/sim/latency"
)

// Shape has the dimensions of a transformer that the analytical models use: the numbers of a Hugging Face config.json.
type Shape struct {
	Layers       int // L
	Hidden       int // D
	Heads        int // H
	KVHeads      int // K; the config's silence means H
	Intermediate int // F; the config's silence means 4·D
	Vocab        int

	Bytes       float64 // per activation and per KV element
	WeightBytes float64 // per weight: quantised value if known, else Bytes

	Experts       int // E; 0 = dense
	ActiveExperts int // e
	ExpertDim     int // Fe; 0 = Intermediate
	SharedDim     int // summed width of shared experts

	TiedEmbeddings bool
	Activation     string // hidden_act
	ModelType      string
	MaxPositions   int
	Rope           RopeScaling
}

// RopeScaling is the config's rope_scaling; Type is empty when there is none.
type RopeScaling struct {
	Type     string
	Factor   float64
	Original int // original_max_position_embeddings
}

var dtypeBytes = map[string]float64{
	"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "fp8": 1, "int4": 1, "nf4": 1,
}

var (
	widthInName = regexp.MustCompile(`(?i)(?:^|[-_./])w(\d+)a\d+(?:$|[-_./])`)
	fp8InName   = regexp.MustCompile(`(?i)(?:^|[-_./])fp8(?:$|[-_./])`)
)

// ParseShape reads a Hugging Face config.json. name, the model's name, is where the width of a weight is looked for
// last; it may be empty.
func ParseShape(data []byte, name string) (Shape, error) {
	var m fields
	if err := json.Unmarshal(data, &m); err != nil {
		return Shape{}, fmt.Errorf("model config: %w", err)
	}
	if text, ok := m["text_config"].(map[string]any); ok {
		for k, v := range text {
			m[k] = v
		}
	}
	s := Shape{
		Layers:        m.int("num_hidden_layers"),
		Hidden:        m.int("hidden_size"),
		Heads:         m.int("num_attention_heads"),
		KVHeads:       m.int("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
		Intermediate:  m.int("intermediate_size", "ffn_hidden_size"),
		Vocab:         m.int("vocab_size"),
		Experts:       m.int("num_local_experts"),
		ActiveExperts: m.int("num_experts_per_tok"),
		ExpertDim:     m.int("moe_intermediate_size"),
		SharedDim:     m.int("shared_expert_intermediate_size"),
		Activation:    m.string("hidden_act"),
		ModelType:     m.string("model_type"),
		MaxPositions:  m.int("max_position_embeddings"),
	}
	s.TiedEmbeddings, _ = m["tie_word_embeddings"].(bool)
	if s.Experts <= 1 {
		if n := m.int("num_routed_experts", "n_routed_experts", "num_experts"); n > 0 {
			s.Experts = n
		}
	}
	if s.KVHeads == 0 {
		s.KVHeads = s.Heads
	}
	if s.Intermediate == 0 {
		s.Intermediate = 4 * s.Hidden
	}
	if s.SharedDim == 0 {
		dim := s.ExpertDim
		if dim == 0 {
			dim = s.Intermediate
		}
		s.SharedDim = int(latency.Ticks(m.float("n_shared_experts") * float64(dim)))
	}
	dtype := m.string("torch_dtype", "dtype")
	var known bool
	if s.Bytes, known = dtypeBytes[strings.TrimPrefix(dtype, "torch.")]; !known {
		if dtype != "" {
			return Shape{}, fmt.Errorf("model config: torch_dtype %q is unknown; known are float32, float16, "+
				"bfloat16, int8, uint8, fp8, int4, nf4", dtype)
		}
		s.Bytes = 2
	}
	s.WeightBytes = weightBytes(m, name)
	if s.WeightBytes == 0 {
		s.WeightBytes = s.Bytes
	}
	if r, ok := m["rope_scaling"].(map[string]any); ok {
		r := fields(r)
		s.Rope = RopeScaling{r.string("rope_type", "type"), r.float("factor"),
			r.int("original_max_position_embeddings")}
	}
	return s, s.check()
}

func (s Shape) check() error {
	var errs []error
	for _, f := range []struct {
		name           string
		v, least, most int
	}{
		{"num_hidden_layers", s.Layers, 1, 1 << 24},
		{"hidden_size", s.Hidden, 1, 1 << 24},
		{"num_attention_heads", s.Heads, 1, 1 << 24},
		{"num_key_value_heads", s.KVHeads, 0, 1 << 24},
		{"intermediate_size", s.Intermediate, 0, 1 << 26},
		{"vocab_size", s.Vocab, 0, 1 << 24},
		{"num_local_experts", s.Experts, 0, 1 << 24},
		{"num_experts_per_tok", s.ActiveExperts, 0, 1 << 24},
		{"moe_intermediate_size", s.ExpertDim, 0, 1 << 24},
		{"shared_expert_intermediate_size", s.SharedDim, 0, 1 << 26},
		{"max_position_embeddings", s.MaxPositions, 0, 1 << 30},
		{"rope_scaling.original_max_position_embeddings", s.Rope.Original, 0, 1 << 30},
	} {
		if f.v < f.least || f.v > f.most {
			errs = append(errs, fmt.Errorf("model config: %s = %d: must be between %d and %d", f.name, f.v, f.least,
				f.most))
		}
	}
	if f := s.Rope.Factor; !(f >= 0 && f <= 1<<20) {
		errs = append(errs, fmt.Errorf("model config: rope_scaling.factor = %v: must be between 0 and %d", f, 1<<20))
	}
	if !(s.WeightBytes > 0 && s.WeightBytes <= 8) {
		errs = append(errs, fmt.Errorf("model config: a weight of %v bits: must be more than 0 and at most 64",
			8*s.WeightBytes))
	}
	if s.Experts > 1 && (s.ActiveExperts <= 0 || s.ActiveExperts > s.Experts) {
		errs = append(errs, fmt.Errorf("model config: num_experts_per_tok = %d: must be between 1 and the %d experts",
			s.ActiveExperts, s.Experts))
	}
	return errors.Join(errs...)
}

func weightBytes(m fields, name string) float64 {
	if q, ok := m["quantization_config"].(map[string]any); ok {
		q := fields(q)
		if bits := q.float("bits"); bits > 0 {
			return bits / 8
		}
		if q.string("quant_method") == "fp8" {
			return 1
		}
		if groups, ok := q["config_groups"].(map[string]any); ok {
			first := ""
			for k := range groups {
				if first == "" || k < first {
					first = k
				}
			}
			if g, ok := groups[first].(map[string]any); ok {
				if w, ok := g["weights"].(map[string]any); ok {
					if bits := fields(w).float("num_bits"); bits > 0 {
						return bits / 8
					}
				}
			}
		}
	}
	if w := widthInName.FindStringSubmatch(name); w != nil {
		bits, _ := strconv.Atoi(w[1])
		return float64(bits) / 8
	}
	if fp8InName.MatchString(name) {
		return 1
	}
	return 0
}

// MoE reports whether the model has a choice of experts.
func (s *Shape) MoE() bool { return s.Experts > 1 }

func (s *Shape) expertDim() int {
	if s.ExpertDim > 0 {
		return s.ExpertDim
	}
	return s.Intermediate
}

// fields is a JSON object whose numbers may be written as strings.
type fields map[string]any

func (m fields) float(keys ...string) float64 {
	for _, k := range keys {
		switch v := m[k].(type) {
		case float64:
			return v
		case string:
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				return f
			}
		}
	}
	return 0
}

func (m fields) int(keys ...string) int { return int(latency.Ticks(m.float(keys...))) }

func (m fields) string(keys ...string) string {
	for _, k := range keys {
		if s, ok := m[k].(string); ok {
			return s
		}
	}
	return ""
}
