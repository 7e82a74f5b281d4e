package config

import (
	"fmt"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// Context and memory of a model, as the options and the header of its file determine them before it is loaded.

// Cells returns the size of the KV cache with which the model is served, in cells; with --ctx-size auto the largest one
// that may be chosen: beyond the training context answers are noise. A model with learned positions gets no more than
// its table has.
func (c *Config) Cells(info *gguf.Info) int {
	switch {
	case c.CtxSize > 0:
		return int(info.Limited(int64(c.CtxSize)))
	case c.CtxSize == AutoContext:
		return int(c.largest(info))
	}
	return int(info.Limited(min(info.TrainContext, maxContext)))
}

// Longest returns the largest context of one request, in tokens, where the KV cache has so many cells.
func (c *Config) Longest(cells int) int {
	switch {
	case c.RequestCtxSize == ShareContext:
		return max(cells/c.Parallel, 1)
	case c.RequestCtxSize > 0:
		return min(cells, c.RequestCtxSize)
	}
	return cells
}

// ContextTokens returns the context size to open the model at path with, in tokens; 0 = its training context. It is
// --ctx-size for a file that cannot be inspected: the engine reports the error.
func (c *Config) ContextTokens(path string) int {
	if info, err := gguf.Inspect(path); err == nil && c.CtxSize != 0 {
		return c.Cells(&info)
	} else if c.CtxSize == AutoContext {
		return gguf.DefaultContext
	}
	return c.CtxSize
}

// DraftContextTokens returns the context size to open the draft model with, or the head in its place.
func (c *Config) DraftContextTokens() int {
	n := c.HeadContextTokens()
	if info, err := gguf.Inspect(c.DraftModel); err == nil && info.TrainContext >= minCtxSize && info.HeadFile == nil {
		n = min(n, int(info.TrainContext))
	}
	return n
}

// maxSealBytes bounds the memory for states of cached prefixes of a recurrent model. Models of 4 B parameters have
// states of 20 to 60 MiB.
const maxSealBytes = 512 << 20

// sealShare is the divisor of the memory for such states, where that is less.
const sealShare = 8

// Sequences returns the number of sequence ids to open the engine of the model at path with: one for each request, the
// rest for cached prefixes. A recurrent model allocates a whole state per id: for cached prefixes it gets as many as
// fit into sealBytes.
func (c *Config) Sequences(path string) (n int, sealBytes int64) {
	info, err := gguf.Inspect(path)
	if err != nil { // the engine reports it
		info = gguf.Info{}
	}
	return c.sequences(&info)
}

// sequences is Sequences of a model whose header is read.
func (c *Config) sequences(info *gguf.Info) (n int, sealBytes int64) {
	recurrent := info.Recurrent
	if recurrent && !c.NoPrefixCache {
		sealBytes = min(maxSealBytes, int64(hostmem.Read().Available/sealShare))
		if n, ok := c.Memory.Of(hostmem.Read().Available); ok && c.Front() {
			sealBytes = min(sealBytes, n/sealShare)
		}
	}
	return core.Sequences(c.Parallel, !c.NoPrefixCache && !recurrent), sealBytes
}

// processor returns this machine's processor, with the kernels that the options allow.
func (c *Config) processor() gguf.Processor {
	p := gguf.ThisProcessor()
	p.Kernels = p.Kernels && c.Kernels != "ggml"
	return p
}

// CheckMemory refuses a model that exceeds the process's address space or the machine's memory. A file that cannot be
// inspected is left to the engine, which reports the error.
func (c *Config) CheckMemory(path string) error {
	if info, err := gguf.Inspect(path); err == nil && !c.OnDevice() {
		if err := c.checkAddressSpace(&info); err != nil {
			return err
		}
	}
	return c.checkAvailable(path, int64(hostmem.Read().Available), c.processor())
}

// checkAvailable refuses a model that exceeds the available memory, in bytes. The engine writes its anonymous memory
// while it opens, and the kernel would kill the process without a message. Anonymous are the KV cells, the repacked
// copy of weights and, with --no-mmap, all weights; mapped weights can be paged and do not count.
func (c *Config) checkAvailable(path string, available int64, p gguf.Processor) error {
	info, err := gguf.Inspect(path)
	if err != nil || c.OnDevice() {
		return nil // cells and weights are in the device's memory
	}
	cells, from := int64(c.Cells(&info)), "--ctx-size"
	switch {
	case c.contextNote != "":
		from = "--ctx-size auto"
	case c.CtxSize == 0:
		from = "the model's training context, as --ctx-size is 0"
	}
	need, what, without, err := c.need(&info, cells, p)
	if err != nil {
		return err
	}
	d, err := c.demand(&info, p)
	if err != nil {
		return err
	}
	per := d.perToken()
	weights := int64(need.Anonymous(!c.NoMMap) - need.KV)
	draft := int64(c.draftNeed(p).Anonymous(!c.NoMMap))
	lora, head := c.loraBytes(), c.headBytes(&info)
	fixed := weights + draft + head + lora + d.States
	if available <= 0 || per <= 0 || cells <= (available-fixed)/per && fixed <= available {
		return nil
	}
	size := func(n int64) string { return ui.Bytes(uint64(n)) }
	text := fmt.Sprintf("%d tokens of context (%s) need %s for KV cells and attention masks", cells, from,
		size(cells*per))
	if weights > 0 {
		text += fmt.Sprintf(", %s %s", what, size(weights))
	}
	if d.States > 0 {
		text += fmt.Sprintf(", the states of recurrent layers %s", size(d.States))
	}
	if draft > 0 {
		text += fmt.Sprintf(", the draft model %s", size(draft))
	}
	if head > 0 {
		text += fmt.Sprintf(", the model's head %s", size(head))
	}
	if lora > 0 {
		text += fmt.Sprintf(", the adapters %s", size(lora))
	}
	advice := ""
	if left := (available - fixed) / per / 256 * 256 * 3 / 4; left >= 256 || fixed == 0 {
		advice = fmt.Sprintf("use --ctx-size %d or less, or a smaller --cache-type-k and --cache-type-v",
			max(256, left))
	}
	if weights > 0 {
		if advice != "" {
			advice += ", or "
		} else {
			advice = "use "
		}
		advice += without
	}
	return fmt.Errorf("%s, and %s are available: %s", text, size(available), advice)
}

// addressMargin is the address space besides weights and KV cells, in bytes: stacks and malloc arenas of threads (72
// MiB each), compute buffers and the logits' buffer. Far less of it is resident.
const addressMargin = 1 << 30

// checkAddressSpace refuses a model that exceeds the process's limit (ulimit -v, LimitAS=): Go's runtime and ggml end
// the process when an allocation fails.
func (c *Config) checkAddressSpace(info *gguf.Info) error {
	limit, used, limited := hostmem.AddressSpace()
	if !limited {
		return nil
	}
	cells := int64(c.Cells(info))
	per, _ := info.KVBytesPerToken(c.CacheTypeK, c.CacheTypeV)
	var copied uint64
	if !c.NoRepack {
		copied = info.Repacked(c.processor()).Copy
	}
	draft := c.draftNeed(c.processor())
	need := used + draft.Total() + uint64(c.loraBytes()+c.headBytes(info)) + uint64(info.FileBytes) + copied +
		uint64(cells*per) + addressMargin
	if need <= limit {
		return nil
	}
	return fmt.Errorf("the address space is limited to %.1f GiB (ulimit -v, LimitAS=); this model with %d cells "+
		"needs %.1f GiB: raise the limit, or use a smaller model or --ctx-size",
		float64(limit)/(1<<30), cells, float64(need)/(1<<30))
}

// need returns the memory that the model takes with so many cells, the name of its weights in anonymous memory for an
// error message, and the option that avoids them.
func (c *Config) need(info *gguf.Info, cells int64, p gguf.Processor) (n gguf.Need, what, without string, err error) {
	var r gguf.Repacking
	if !c.NoRepack {
		r = info.Repacked(p)
	}
	switch {
	case c.NoMMap:
		what, without = "the weights, in memory because of --no-mmap,", "no --no-mmap"
	case r.Copy > 0:
		what, without = "the weights repacked for this processor", "--no-repack, which makes prompts slower"
	}
	n, err = info.Need(cells, c.CacheTypeK, c.CacheTypeV, r)
	return n, what, without, err
}

// draftNeed returns the memory that the draft model takes; none without one, or if its file cannot be read, which the
// engine reports later.
func (c *Config) draftNeed(p gguf.Processor) (n gguf.Need) {
	if c.DraftModel == "" || c.NoDraft() != "" {
		return n
	}
	info, err := gguf.Inspect(c.DraftModel)
	if err != nil {
		return n
	}
	var r gguf.Repacking
	if !c.NoRepack {
		r = info.Repacked(p)
	}
	n, _ = info.Need(int64(c.DraftContextTokens()), "f16", "f16", r)
	return n
}

// processBytes is the memory of an engine process besides weights, KV cells and host tier, in bytes: Go's heap and the
// engine's buffers. A process uses a part of this reserve.
const processBytes = 128 << 20
