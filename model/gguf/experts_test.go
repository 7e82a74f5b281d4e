package gguf

import "testing"

// TestExpertBytesOf: the bytes of experts are counted by layer; a name without a number counts in the whole alone.
func TestExpertBytesOf(t *testing.T) {
	var info Info
	for name, size := range map[string]uint64{"blk.0.ffn_up_exps.weight": 1, "blk.0.ffn_down_exps.weight": 2,
		"blk.2.ffn_gate_exps.weight": 4, "blk.11.ffn_up_exps.weight": 8, "odd_exps.weight": 16,
		"blk.99999999999999999999.ffn_up_exps.weight": 32} {
		info.addExperts(name, size)
	}
	for _, c := range []struct {
		from, to int64
		want     uint64
	}{{0, 0, 0}, {0, 1, 3}, {0, 2, 3}, {1, 3, 4}, {0, 12, 15}, {3, 11, 0}, {-5, 100, 15}, {3, 2, 0}} {
		if got := info.ExpertBytesOf(c.from, c.to); got != c.want {
			t.Errorf("layers %d … %d: %d bytes, want %d", c.from, c.to-1, got, c.want)
		}
	}
	if info.ExpertBytes != 63 {
		t.Errorf("%d bytes in all, want 63", info.ExpertBytes)
	}
}
