package gpu

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// GPU is one line of a data sheet.
type GPU struct {
	TFlopsPeak float64 // dense bf16
	TFlopsFP8  float64 // 0 = has none
	BwPeakTBs  float64 // memory bandwidth, terabytes a second
	MFUPrefill float64 `json:"mfuPrefill"` // share of the peak that prefill reaches
	MFUDecode  float64 `json:"mfuDecode"`
	MemoryGiB  float64
}

// GPUs is the built-in hardware table. The fp8 figure of the L40S is the one with sparsity, the others are dense.
var GPUs = map[string]GPU{
	"H100":     {989.5, 1979, 3.35, 0.45, 0.30, 80},
	"A100-SXM": {312, 0, 2.039, 0.38, 0.18, 80},
	"A100-80":  {312, 0, 2.039, 0.38, 0.18, 80},
	"L40S":     {362.05, 1466, 0.864, 0.32, 0.08, 48},
}

// ParseGPUs reads a hardware table: a JSON object from a GPU's name to its line.
func ParseGPUs(data []byte) (map[string]GPU, error) {
	var t map[string]GPU
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("hardware config: %w", err)
	}
	return t, nil
}

// FindGPU looks a GPU up and checks its line.
func FindGPU(table map[string]GPU, name string) (GPU, error) {
	g, ok := table[name]
	if !ok {
		return g, fmt.Errorf("gpu %q is not in the hardware table; it has %s", name,
			strings.Join(slices.Sorted(maps.Keys(table)), ", "))
	}
	if !(g.TFlopsPeak > 0 && g.BwPeakTBs > 0 && g.MFUPrefill > 0 && g.MFUDecode > 0) {
		return g, fmt.Errorf("gpu %q: TFlopsPeak, BwPeakTBs, mfuPrefill and mfuDecode must be > 0", name)
	}
	return g, nil
}
