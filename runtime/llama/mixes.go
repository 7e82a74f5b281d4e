//go:build cgo && llama_engine && !llama_no_adapters

package llama

// #include "bridge.h"
// #include "adapters.h"
import "C"

import "unsafe"

const builtAdapters = true

// contextMixes are the sets of a context's adapters by mix, made at their first use.
type contextMixes struct {
	sets [256]unsafe.Pointer // that of the mix in use is the context's
	set  uint8
}

// use has the next pass computed with a mix.
func (e *engine) use(mix uint8) {
	m := &e.mixes
	c := &m.context
	if m.grown { // while the context has a set that llama.cpp made, and may free
		e.giveBack()
		if a := m.loaded[m.newest]; a != nil {
			one := C.float(1)
			C.uma_use_adapters(e.ctx, &a, 1, &one)
			C.uma_use_adapters(e.ctx, nil, 0, nil)
		}
		m.grown = false
	}
	if c.set == mix {
		return
	}
	if c.sets[mix] == nil {
		s := &m.sets[mix]
		c.sets[mix] = C.uma_mix_new(unsafe.SliceData(s.adapters), unsafe.SliceData(s.scales), C.size_t(len(s.adapters)))
	}
	c.sets[c.set] = C.uma_mix_swap(e.ctx, c.sets[mix])
	c.set = mix
}

// giveBack gives the context the set that it was made with.
func (e *engine) giveBack() {
	if c := &e.mixes.context; c.set != 0 {
		c.sets[c.set] = C.uma_mix_swap(e.ctx, c.sets[0])
		c.set = 0
	}
}

// changed forgets the set of a mix.
func (e *engine) changed(mix uint8) {
	c := &e.mixes.context
	if c.set == mix {
		e.giveBack()
	}
	C.uma_mix_free(c.sets[mix])
	c.sets[mix] = nil
}

// freeMixes frees all sets but the context's.
func (e *engine) freeMixes() {
	e.giveBack()
	for i := 1; i < len(e.mixes.context.sets); i++ {
		e.changed(uint8(i))
	}
}
