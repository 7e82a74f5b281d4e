package adapters

import (
	"slices"

	"github.com/uma-serve/uma-serve/runtime"
)

// Mixes gives the choices of requests numbers of the engine's mixes, and frees adapters that were unloaded. The decode
// loop owns it.
type Mixes struct {
	eng     runtime.Adapters
	made    []Choice // of mix 1, 2, …; nil: free
	parts   []runtime.Scaled
	leaving []*Adapter // unloaded, and not freed yet
}

// ofLoop is the decode loop's part of an Adapter.
type ofLoop struct {
	spaces map[uint64]struct{} // the namespaces of prefixes that may be the adapter's
	quiet  bool                // no request had it when Free looked
	freed  bool
}

// NewMixes returns the mixes of an engine.
func NewMixes(eng runtime.Engine) *Mixes {
	m := &Mixes{}
	m.eng, _ = eng.(runtime.Adapters) // nil: no request has adapters
	return m
}

// Arrives notes that a request with a choice computes prefixes of a namespace. It returns an adapter of the choice that
// was unloaded and freed before the request came, or nil.
func (m *Mixes) Arrives(c Choice, namespace uint64) *Adapter {
	for _, p := range c {
		a := p.Adapter
		if a.freed {
			return a
		}
		a.quiet = false
		if a.spaces == nil {
			a.spaces = map[uint64]struct{}{}
		}
		a.spaces[namespace] = struct{}{}
	}
	return nil
}

// Leave frees an adapter, which Table.Remove or Add has returned, when its requests have ended.
func (m *Mixes) Leave(a *Adapter) {
	if a != nil {
		m.leaving = append(m.leaving, a)
	}
}

// Leaving reports whether Free has work.
func (m *Mixes) Leaving() bool { return len(m.leaving) > 0 }

// Settles reports whether Free will free an adapter at its next call.
func (m *Mixes) Settles() bool {
	return slices.ContainsFunc(m.leaving, func(a *Adapter) bool { return a.quiet })
}

// Free frees the adapters that were unloaded and that no live request has. used reports whether one has a mix; drop
// drops the idle prefixes of namespaces. The requests of an adapter have ended by one call and their cells are
// prefixes by the next one, so it takes two.
func (m *Mixes) Free(used func(mix uint8) bool, drop func(of func(namespace uint64) bool)) {
	m.leaving = slices.DeleteFunc(m.leaving, func(a *Adapter) bool {
		has := func(c Choice) bool { return slices.ContainsFunc(c, func(p Scaled) bool { return p.Adapter == a }) }
		for i, c := range m.made {
			if has(c) && used(uint8(i+1)) {
				a.quiet = false
				return false
			}
		}
		if !a.quiet {
			a.quiet = true
			return false
		}
		for i, c := range m.made {
			if has(c) {
				m.made[i] = nil
				m.eng.SetMix(uint8(i+1), nil)
			}
		}
		drop(func(namespace uint64) bool { _, has := a.spaces[namespace]; return has })
		a.spaces, a.freed = nil, true
		m.eng.UnloadAdapter(a.id)
		return true
	})
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
	if i := slices.IndexFunc(m.made, func(c Choice) bool { return c == nil }); i >= 0 {
		mix = uint8(i + 1)
	} else if len(m.made) < runtime.MaxMixes {
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
		m.parts = append(m.parts, runtime.Scaled{Adapter: p.Adapter.id, Scale: p.Scale})
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
