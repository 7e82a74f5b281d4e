//go:build cgo && llama_engine && !llama_no_heads

package llama

// #include <stdlib.h>
// #include "heads.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama/picks"
)

// A DFlash head guesses a block of tokens in one pass. Its cells hold what its layers make of the states of the model's
// rows, at these rows' positions: for a token at a position that is the row before. Behind them a block is decoded, the
// newest token and a mask for each guess, whose rows read one another; the next Decode of the sequence finds its cells
// removed.

// blocks is the part of a headFile that guesses blocks.
type blocks struct {
	size   int  // guesses; 0: the head makes one at a time
	causal bool // each row of a block reads those before it alone
	first  bool // the row of the newest token makes the first guess, and the last mask is left out
	mask   runtime.Token
	noise  *C.struct_llama_batch // the rows of the blocks
	seqs   *C.llama_seq_id       // theirs
	pos    []runtime.Pos         // of the rows of states; with positions in several dimensions, each behind the other
	seq    []runtime.Seq
	sides  int // dimensions of a position
	picks.Picks
}

// openBlocks makes the batches of a head that guesses blocks, of so many rows. That of states has embeddings in the
// place of tokens.
func (f *headFile) openBlocks(h *head, rows int) {
	b, seqs := newBatch(rows)
	C.free(unsafe.Pointer(b.token))
	C.free(unsafe.Pointer(b.pos))
	if f.sides = 1; C.llama_model_rope_type(h.model) == C.LLAMA_ROPE_TYPE_MROPE {
		f.sides = 4
	}
	b.token, b.pos = nil, (*C.llama_pos)(C.calloc(C.size_t(f.sides*rows), 4))
	b.embd = (*C.float)(C.calloc(C.size_t(rows*f.width), 4))
	f.batch, f.states = b, unsafe.Slice((*float32)(b.embd), rows*f.width)
	f.pos, f.seq = unsafe.Slice((*runtime.Pos)(b.pos), f.sides*rows), unsafe.Slice((*runtime.Seq)(seqs), rows)
	f.noise, f.seqs = newBatch(rows)
	h.mixes.at = make([]int32, rows)
	if f.Most > 0 {
		f.Picks.Open(rows, h.nVoc)
		C.uma_keep_states(h.ctx, true, false)
	}
	f.mask = runtime.Token(C.llama_vocab_mask(C.llama_model_get_vocab(h.model)))
}

// decodeBlocks writes the states that the batch's rows follow into the cells, and computes its blocks.
func (h *head) decodeBlocks() error {
	f, b := h.file, &h.batch
	rows := f.rows
	f.rows = f.rows[:0]
	if err := h.begin(); err != nil {
		return err
	}
	h.stop.decide, h.stop.never = 0, true
	for k, i := range rows {
		f.pos[k], f.seq[k] = b.Pos[i]-1, b.Seq[i]
		for side := 1; side < f.sides-1; side++ { // the last one is 0
			f.pos[side*len(rows)+k] = f.pos[k]
		}
	}
	rc := C.uma_decode(h.ctx, f.batch, C.int32_t(len(rows)), false, h.stop)
	h.guardBatch()
	if n := f.fillNoise(b, h.has, h.mixes.at); rc == 0 && n > 0 {
		rc = C.uma_decode(h.ctx, f.noise, C.int32_t(n), false, h.stop)
	}
	for i, before := 0, 0; rc == 0 && f.Most > 0 && i < len(b.Token); i++ {
		if h.has[i] == 0 {
			before = 0
		} else if of := h.state(int(h.mixes.at[i]), h.width); of == nil {
			return fmt.Errorf("%w: the head left no candidates", runtime.ErrDecode)
		} else {
			before = f.Pick(i, of, before)
		}
	}
	h.mixes.split = true // rows are elsewhere in the batch of blocks
	return h.finish(rc)
}

// fillNoise copies the rows of b's blocks, which has marks, and the row before each, and returns their number; where
// that row makes the first guess, without the last of each block. at gets the places of their logits. llama.cpp's
// graph computes those of all.
func (f *headFile) fillNoise(b *runtime.Batch, has []int8, at []int32) (n int) {
	most := len(at)
	token, logits := unsafe.Slice((*runtime.Token)(f.noise.token), most), unsafe.Slice((*int8)(f.noise.logits), most)
	pos, seq := unsafe.Slice((*runtime.Pos)(f.noise.pos), most), unsafe.Slice((*runtime.Seq)(f.seqs), most)
	for i := range b.Token {
		guess, ahead := has[i] != 0, i+1 < len(b.Token) && has[i+1] != 0 && b.Seq[i+1] == b.Seq[i]
		if at[i] = int32(n - 1); !ahead && (!guess || f.first) {
			continue
		}
		token[n], pos[n], seq[n], logits[n] = b.Token[i], b.Pos[i], b.Seq[i], 1
		if guess {
			token[n] = f.mask
		}
		if !f.first {
			at[i] = int32(n)
		}
		n++
	}
	return n
}

// Block implements runtime.Head.
func (h *head) Block() int {
	if h.file == nil {
		return 1
	}
	return max(1, h.file.size)
}

// SeqRemove implements runtime.Engine. The state of a row before p0 lies a position before it, and so does the newest
// token of a block.
func (h *head) SeqRemove(s runtime.Seq, p0, p1 runtime.Pos) bool {
	if h.Block() > 1 {
		p0--
		if p1 > 0 {
			p1--
		}
	}
	return h.engine.SeqRemove(s, p0, p1)
}

// SeqRange implements runtime.Engine.
func (h *head) SeqRange(s runtime.Seq) (first, last runtime.Pos) {
	if first, last = h.engine.SeqRange(s); h.Block() > 1 && last >= 0 {
		return first + 1, last + 1
	}
	return first, last
}
