//go:build cgo && (llama_engine || llama_system) && (llama_system || llama_no_adapters)

package llama

// #include "bridge.h"
import "C"

import "unsafe"

const builtAdapters = false

// contextMixes remembers the mix of the context.
type contextMixes struct {
	set   uint8
	dirty bool
}

// use has the next pass computed with a mix.
func (e *engine) use(mix uint8) {
	c := &e.mixes.context
	if c.set == mix && !c.dirty {
		return
	}
	s := &e.mixes.sets[mix]
	C.uma_use_adapters(e.ctx, unsafe.SliceData(s.adapters), C.size_t(len(s.adapters)), unsafe.SliceData(s.scales))
	c.set, c.dirty, e.mixes.grown = mix, false, false
}

// changed has the set of a mix made again.
func (e *engine) changed(mix uint8) {
	e.mixes.context.dirty = e.mixes.context.dirty || e.mixes.context.set == mix
}

func (e *engine) freeMixes() {}
