package adapters

import (
	"slices"

	"github.com/uma-serve/uma-serve/runtime"
)

// Mixes gives the choices of requests numbers of the engine's mixes. The decode loop owns it.
type Mixes struct {
	table *Table
	eng   runtime.Adapters
	made  []Choice // of mix 1, 2, …
	parts []runtime.Scaled
}

// NewMixes returns the mixes of an engine with the table's adapters.
func NewMixes(t *Table, eng runtime.Engine) *Mixes {
	m := &Mixes{table: t}
	if t != nil {
		m.eng = eng.(runtime.Adapters) // Load has asked
	}
	return m
}

// Take returns the mix of a choice. used reports whether a live request has a mix: others may be given to another
// choice. ok is false when all mixes are used.
func (m *Mixes) Take(c Choice, used func(mix uint8) bool) (mix uint8, ok bool) {
	if len(c) == 0 {
		return 0, true
	}
	for i, made := range m.made {
		if slices.Equal(made, c) {
			return uint8(i + 1), true
		}
	}
	if len(m.made) < runtime.MaxMixes {
		m.made = append(m.made, nil)
		mix = uint8(len(m.made))
	} else {
		for i := range m.made {
			if !used(uint8(i + 1)) {
				mix = uint8(i + 1)
				break
			}
		}
		if mix == 0 {
			return 0, false
		}
	}
	m.made[mix-1] = slices.Clone(c)
	m.parts = m.parts[:0]
	for _, p := range c {
		m.parts = append(m.parts, runtime.Scaled{Adapter: m.table.list[p.Adapter].id, Scale: p.Scale})
	}
	m.eng.SetMix(mix, m.parts)
	return mix, true
}

// Passes returns how many passes over the weights a batch takes beyond the first.
func (m *Mixes) Passes(b *runtime.Batch) (n int) {
	if len(m.made) == 0 {
		return 0
	}
	var seen [runtime.MaxMixes + 1]bool
	for _, mix := range b.Mix {
		if !seen[mix] {
			seen[mix] = true
			n++
		}
	}
	return max(n-1, 0)
}
