//go:build cgo && llama_engine && !llama_no_heads

package llama

// #include "heads.h"
import "C"

import (
	"errors"

	"github.com/uma-serve/uma-serve/runtime"
)

// An assistant of Gemma 4 attends to the cells of its model's last two layers, and writes none. llama.cpp gives its
// context the model's memory: it is made for as many cells and sequences, empties them when it is made, and looks for
// a free cell for each row, which it does not take. All cells of the model's windowed layers are kept (windows.go), so
// that a row sees what the model's own next row will.

// share sets what the context of a head has in common with that of the model whose memory it reads.
func (f *headFile) share(of *engine, c *C.uma_context_options) error {
	c.n_ctx, c.n_seq_max = C.llama_n_ctx(of.ctx), C.llama_n_seq_max(of.ctx)
	// With flash attention values lie in rows, without in columns. A processor always has it, unless it is off.
	switch c.flash_attn = C.int32_t(of.flash); {
	case of.flash != C.LLAMA_FLASH_ATTN_TYPE_AUTO:
	case of.caps.Device == runtime.DeviceCPU:
		c.flash_attn = C.LLAMA_FLASH_ATTN_TYPE_ENABLED
	default:
		return errors.New("it reads the model's cells, and whether they are for flash attention is llama.cpp's " +
			"choice on a device: --flash-attn on or off says it")
	}
	c.model = of.ctx
	return nil
}

// Shared implements runtime.Head.
func (h *head) Shared() bool { return h.file != nil && h.file.shared }
