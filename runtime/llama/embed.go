//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama/known"
)

// Embeddings come from the same context as answers. With pooling "none" a context that is told to
// (llama_set_embeddings) keeps the hidden state of each output row beside its logits, and the graph stays the same but
// for that copy; so a batch may hold rows of both kinds, and docs/adr/0014-embeddings.md says why there is no second
// context.

const (
	// embeddingLogits bounds the memory that the logits of rows take which were decoded for their embedding alone:
	// llama.cpp computes and stores logits for every output row.
	embeddingLogits = 32 << 20 // bytes
	// leastEmbeddingRows is the number of such rows that a batch may always have, however large the vocabulary is.
	leastEmbeddingRows = 16
	// encoderTile: the attention kernel computes texts whose batch has a multiple of so many rows, ggml's the others,
	// which rounds differently. Batches are filled up, so that a text's result does not depend on their size.
	encoderTile = 4
)

// embeddingRows is Capabilities.MaxEmbeddingRows.
func (e *engine) embeddingRows() int {
	if e.encoder {
		return e.batchRows()
	}
	if !C.uma_embeds(e.model) {
		return 0
	}
	n := max(embeddingLogits/(4*max(e.nVoc, 1)), leastEmbeddingRows)
	return min(n, int(C.llama_n_ubatch(e.ctx)), e.batchRows())
}

// batchRows returns the limit on rows of a caller's batch.
func (e *engine) batchRows() int {
	n := int(C.llama_n_batch(e.ctx))
	switch {
	case e.encoder:
		n -= encoderTile
	case e.guarded != nil:
		n = min(n, int(C.llama_n_ubatch(e.ctx)))
	}
	return n
}

// encoderContext sets the sizes of an encoder's context: a text is computed in one pass, whole.
func (e *engine) encoderContext(c *C.uma_context_options) error {
	train := int(C.llama_model_n_ctx_train(e.model))
	longest := int(c.n_ctx)
	if longest == 0 || longest > train {
		longest = train // position embeddings end there
	}
	if longest < 1 || longest > 1<<20 {
		return fmt.Errorf("its context_length is %d", train)
	}
	e.longest = longest
	rows := max(longest, int(c.n_ubatch)) + encoderTile
	c.n_ctx, c.n_batch, c.n_ubatch = C.uint32_t(rows), C.uint32_t(rows), C.uint32_t(rows)
	c.whole_texts = true
	if known.UnusedMemory[e.meta("general.architecture")] {
		c.n_ctx = 1 // the least of that memory; whole_texts keeps llama.cpp from cutting n_batch to it
	}
	c.n_seq_max = min(c.n_seq_max+1, known.MaxSequences) // one for the rows that fill a batch up: see sequences
	c.embeddings, e.embeds = true, true
	return nil
}

// sequences returns the number of sequences for the caller, from 0 on. The rows that fill up an encoder's batch use the
// next one.
func (e *engine) sequences() int {
	n := int(C.llama_n_seq_max(e.ctx))
	switch {
	case e.encoder:
		n--
	case e.guarded != nil:
		n /= 2
	}
	return n
}

// fill adds rows of a separate sequence to an encoder's batch of n rows and returns their number with these.
func (e *engine) fill(n int) int {
	for ; n%encoderTile != 0; n++ {
		tokens, pos := unsafe.Slice(e.cbatch.token, n+1), unsafe.Slice(e.cbatch.pos, n+1)
		tokens[n], pos[n] = 0, C.llama_pos(n%encoderTile)
		*unsafe.Slice(e.cbatch.seq_id, n+1)[n] = C.llama_seq_id(e.sequences())
		unsafe.Slice(e.cbatch.logits, n+1)[n] = C.int8_t(runtime.RowEmbedding)
	}
	return n
}

// checkTexts refuses an encoder's batch in which a sequence is no whole text: positions from 0 on, without gaps.
func (e *engine) checkTexts() error {
	clear(e.next)
	b := &e.batch
	for i, s := range b.Seq {
		if b.Pos[i] != e.next[s] {
			return fmt.Errorf("%w: row %d: position %d of sequence %d, want %d: an encoder reads whole texts",
				runtime.ErrDecode, i, b.Pos[i], s, e.next[s])
		}
		if e.next[s]++; int(e.next[s]) > e.longest {
			return fmt.Errorf("%w: row %d: sequence %d has more than %d tokens", runtime.ErrDecode, i, s, e.longest)
		}
	}
	return nil
}

// wantEmbeddings tells llama.cpp whether the next batch has rows whose hidden state is wanted.
func (e *engine) wantEmbeddings(on bool) {
	if on != e.embeds && !e.encoder {
		C.llama_set_embeddings(e.ctx, C.bool(on))
		e.embeds = on
	}
}

// Embedding implements runtime.Embedder.
func (e *engine) Embedding(i int) []float32 {
	if !e.hasRow(i, runtime.RowEmbedding) {
		return nil
	}
	if row := e.keptHidden(i); row != nil {
		return row
	}
	return unsafe.Slice((*float32)(C.llama_get_embeddings_ith(e.ctx, e.row(i))), e.info.Embedding)
}

// pooling returns the pooling kind in the file.
func (e *engine) pooling(arch string) (runtime.Pooling, error) {
	return known.Pooling(arch, e.meta(arch+".pooling_type"), e.encoder)
}
