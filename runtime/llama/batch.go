//go:build cgo && (llama_engine || llama_system)

package llama

/*
#include <stdlib.h>
#include "bridge.h"
*/
import "C"

import (
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

// newBatch makes the C arrays of a batch of n tokens, with each row's sequence list wired to the one element that is
// its own in seqs.
func newBatch(n int) (b *C.struct_llama_batch, seqs *C.llama_seq_id) {
	alloc := func(elems int, size uintptr) unsafe.Pointer { return C.calloc(C.size_t(elems), C.size_t(size)) }
	b = (*C.struct_llama_batch)(alloc(1, unsafe.Sizeof(C.struct_llama_batch{})))
	seqs = (*C.llama_seq_id)(alloc(n, 4))
	b.token = (*C.llama_token)(alloc(n, 4))
	b.pos = (*C.llama_pos)(alloc(n, 4))
	b.n_seq_id = (*C.int32_t)(alloc(n, 4))
	b.seq_id = (**C.llama_seq_id)(alloc(n, unsafe.Sizeof(uintptr(0))))
	b.logits = (*C.int8_t)(alloc(n, 1))
	counts, lists := unsafe.Slice(b.n_seq_id, n), unsafe.Slice(b.seq_id, n)
	for i := range n {
		counts[i] = 1
		lists[i] = (*C.llama_seq_id)(unsafe.Add(unsafe.Pointer(seqs), 4*i))
	}
	return b, seqs
}

// allocBatch makes a batch of n tokens. The caller sees as many of them as a batch may have.
func (e *engine) allocBatch(n int) {
	b, seqs := newBatch(n)
	e.cbatch = b
	rows := e.batchRows()
	e.batch = runtime.Batch{
		Token:  unsafe.Slice((*runtime.Token)(b.token), rows)[:0],
		Pos:    unsafe.Slice((*runtime.Pos)(b.pos), rows)[:0],
		Seq:    unsafe.Slice((*runtime.Seq)(seqs), rows)[:0],
		Logits: unsafe.Slice((*int8)(b.logits), rows)[:0],
		Mix:    make([]uint8, 0, rows),
	}
	e.has = make([]int8, rows)
	if e.encoder {
		e.next = make([]runtime.Pos, e.sequences())
	}
}

func (e *engine) freeBatch() {
	freeBatch(e.cbatch)
	freeBatch(e.mixes.piece)
	e.cbatch, e.mixes.piece, e.batch = nil, nil, runtime.Batch{}
}

func freeBatch(b *C.struct_llama_batch) {
	if b == nil {
		return
	}
	if b.seq_id != nil {
		C.free(unsafe.Pointer(*b.seq_id))
	}
	for _, p := range []unsafe.Pointer{
		unsafe.Pointer(b.token), unsafe.Pointer(b.pos), unsafe.Pointer(b.n_seq_id),
		unsafe.Pointer(b.seq_id), unsafe.Pointer(b.logits), unsafe.Pointer(b.embd), unsafe.Pointer(b),
	} {
		C.free(p)
	}
}
