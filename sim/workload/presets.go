package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Gaussian is a clamped normal distribution of token counts.
type Gaussian struct{ Mean, SD, Min, Max float64 }

func (g Gaussian) lengths() Lengths {
	return Lengths{"gaussian", map[string]float64{"mean": g.Mean, "std_dev": g.SD, "min": g.Min, "max": g.Max}}
}

// Distribution is a workload of one client with constant gaps and gaussian lengths: what --workload distribution and
// the presets mean.
type Distribution struct {
	Rate        float64 // requests a second
	Requests    int64
	Seed        int64
	Input       Gaussian
	Output      Gaussian
	Prefix      int   // tokens all prompts begin with
	Concurrency int   // > 0: closed loop, Rate does not count
	ThinkUs     int64 // closed loop
	Process     string
}

// DefaultDistribution has the defaults of the flags.
func DefaultDistribution() Distribution {
	return Distribution{Rate: 1, Requests: 100, Seed: 42, Input: Gaussian{512, 256, 2, 7000},
		Output: Gaussian{512, 256, 2, 7000}, Process: "constant"}
}

var presets = map[string][2]Gaussian{
	"chatbot":       {{256, 100, 2, 800}, {256, 100, 1, 1024}},
	"summarization": {{4096, 500, 100, 8192}, {512, 150, 10, 2048}},
	"contentgen":    {{1024, 150, 10, 2048}, {1024, 200, 10, 2048}},
	"multidoc":      {{10240, 1200, 500, 20480}, {1536, 300, 50, 4096}},
}

// PresetNames lists the presets.
func PresetNames() []string { return slices.Sorted(maps.Keys(presets)) }

// Preset sets the lengths of a named preset.
func (d *Distribution) Preset(name string) error {
	p, ok := presets[name]
	if !ok {
		return fmt.Errorf("workload %q is unknown; valid are distribution, meridian, %s", name,
			strings.Join(PresetNames(), ", "))
	}
	d.Input, d.Output = p[0], p[1]
	return nil
}

// Spec returns the distribution as a workload specification.
func (d *Distribution) Spec() (*Spec, error) {
	c := Client{ID: "distribution", RateFraction: 1, Arrival: Arrival{Process: d.Process}, Input: d.Input.lengths(),
		Output: d.Output.lengths()}
	if d.Prefix > 0 {
		c.PrefixGroup, c.PrefixLength = "shared", d.Prefix
	}
	if d.Concurrency > 0 {
		c.RateFraction, c.Concurrency, c.ThinkTimeUs = 0, d.Concurrency, d.ThinkUs
	}
	s := &Spec{Version: "2", Seed: d.Seed, AggregateRate: d.Rate, NumRequests: d.Requests, Clients: []Client{c}}
	return s, s.Check()
}
