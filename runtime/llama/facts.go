//go:build cgo && (llama_engine || llama_system)

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

// meta returns a scalar value of the file's metadata as text, "" when it is missing or longer than 1 KiB.
func (e *engine) meta(key string) string {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	var buf [1024]C.char
	if n := C.llama_model_meta_val_str(e.model, k, &buf[0], C.size_t(len(buf))); n < 0 || int(n) >= len(buf) {
		return ""
	}
	return C.GoString(&buf[0])
}

// describe fills Capabilities and ModelInfo, all but KVBytesPerToken, which warmUp measures.
func (e *engine) describe(o runtime.Options, threads int, typeK, typeV int32) error {
	var desc [256]C.char
	C.llama_model_desc(e.model, &desc[0], C.size_t(len(desc)))
	name := e.meta("general.name")
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(o.ModelPath), ".gguf")
	}
	recurrent := bool(C.llama_model_is_recurrent(e.model)) || bool(C.llama_model_is_hybrid(e.model))
	arch := e.meta("general.architecture")
	pooling, err := e.pooling(arch)
	if err != nil {
		return modelError(o.ModelPath, err.Error())
	}
	e.info = runtime.ModelInfo{
		Path: o.ModelPath, Name: name,
		Architecture:  arch,
		Description:   C.GoString(&desc[0]),
		Parameters:    uint64(C.llama_model_n_params(e.model)),
		Bytes:         uint64(C.llama_model_size(e.model)),
		RepackedBytes: e.repackedBytes(),
		TrainContext:  int(C.llama_model_n_ctx_train(e.model)),
		Positions:     e.positions,
		Layers:        int(C.llama_model_n_layer(e.model)),
		Embedding:     int(C.llama_model_n_embd(e.model)),
		Heads:         int(C.llama_model_n_head(e.model)),
		KVHeads:       int(C.llama_model_n_head_kv(e.model)),
		VocabSize:     e.nVoc,
		KVTypeK:       kvTypeName(typeK),
		KVTypeV:       kvTypeName(typeV),
		SlidingWindow: e.window,
		Recurrent:     recurrent,
		Pooling:       pooling,
		Encoder:       e.encoder,
		StateBytes:    e.stateBytes,
	}
	rope := C.llama_model_rope_type(e.model)
	kind, device, devices := e.device(o)
	e.caps = runtime.Capabilities{
		UnifiedKV:   !e.caps.CopiesBytes,
		CopiesBytes: e.caps.CopiesBytes,
		PagedKV:     !e.encoder && !bool(C.llama_model_is_recurrent(e.model)) && !e.caps.CopiesBytes,
		// Models with positions in several dimensions say they can shift and then abort the process.
		CanShift: !e.encoder && bool(C.llama_memory_can_shift(e.mem)) && rope != C.LLAMA_ROPE_TYPE_MROPE &&
			rope != C.LLAMA_ROPE_TYPE_IMROPE && e.shifts(),
		Seals:            recurrent || e.window > 0 && e.guarded == nil,
		CanAbort:         kind == runtime.DeviceCPU,
		Beside:           devices != 0 && devices&1 == 0 && !e.encoder && !e.oneSequence,
		ProbesRows:       e.probesRows(),
		MaxBatch:         e.batchRows(),
		MaxMicroBatch:    int(C.llama_n_ubatch(e.ctx)),
		MaxSequences:     e.sequences(),
		ContextTokens:    int(C.llama_n_ctx(e.ctx)),
		MaxEmbeddingRows: e.embeddingRows(),
		Threads:          threads,
		Device:           kind,
		DeviceName:       device,
		Devices:          devices,
		Placed:           placedOf(e),
		EngineBuild:      engineBuild(),
		Kernels:          Kernels(),
		Ours:             Ours(),
		LeftOut:          LeftOut(),
	}
	if e.positions > 0 { // llama.cpp rounds the pool up to whole blocks
		e.caps.ContextTokens = min(e.caps.ContextTokens, e.positions)
	}
	if e.encoder {
		e.caps.MaxMicroBatch, e.caps.ContextTokens = e.caps.MaxBatch, e.longest
	}
	if full := !e.caps.Seals && kind == runtime.DeviceCPU; builtPositions && full && !e.encoder && !e.ordered {
		e.caps.Ours = slices.DeleteFunc(e.caps.Ours, func(p string) bool { return p == "positions" })
		e.caps.LeftOut = append(e.caps.LeftOut, "positions (this memory)")
	}
	if e.guarded != nil {
		e.caps.SnapshotTokens = e.window
	}
	e.readRanking(o.ModelPath)
	return nil
}

// device returns the devices that the layers run on, by llama.cpp's rules: GPUs, else integrated ones, else the CPU.
// used has a bit for each device, as Capabilities.Devices has them.
func (e *engine) device(o runtime.Options) (kind runtime.DeviceKind, name string, used uint32) {
	const processor = 1
	kind = runtime.DeviceCPU
	var names []string
	var cpu string
	gpu := processor // the bit of the newest GPU
	for i := range C.ggml_backend_dev_count() {
		d := C.ggml_backend_dev_get(i)
		name := C.GoString(C.ggml_backend_dev_description(d))
		k := deviceKind(d)
		if k == runtime.DeviceCPU {
			if C.ggml_backend_dev_type(d) == C.GGML_BACKEND_DEVICE_TYPE_CPU {
				cpu = name
			}
			continue
		}
		gpu <<= 1
		if len(o.Placed) > 0 && !slices.ContainsFunc(o.Placed, func(on runtime.DeviceLayers) bool {
			return on.Device == C.GoString(C.ggml_backend_dev_name(d))
		}) {
			continue
		}
		switch {
		case k == runtime.DeviceIGPU && len(names) > 0 && kind != runtime.DeviceIGPU:
			continue // not used beside others
		case kind == runtime.DeviceIGPU && k != runtime.DeviceIGPU:
			names, used = nil, 0
		}
		kind, names, used = k, append(names, name), used|uint32(gpu)
	}
	if o.GPULayers == 0 || len(names) == 0 {
		return runtime.DeviceCPU, cpu, processor
	}
	var parts []string
	layers := e.blocks()
	total := layers + 1
	on := total
	if o.GPULayers > 0 && o.GPULayers < total {
		on = o.GPULayers
		parts = append(parts, fmt.Sprintf("%d of %d layers", on, total))
	}
	experts := e.meta(e.info.Architecture + ".expert_count")
	if n := runtime.HostExperts(layers, on, o.CPUMoE); n > 0 && experts != "" && experts != "0" {
		parts = append(parts, fmt.Sprintf("experts of %d of %d layers in host memory", n, layers))
	}
	if len(parts) > 0 {
		return kind, fmt.Sprintf("%s (%s)", strings.Join(names, ", "), strings.Join(parts, ", ")), used | processor
	}
	return kind, strings.Join(names, ", "), used
}

// blocks returns the number of the file's layers. Those of a head are among them: llama.cpp counts them where it puts
// the last layers on devices, but not in llama_model_n_layer.
func (e *engine) blocks() int {
	n, err := strconv.Atoi(e.meta(e.info.Architecture + ".block_count"))
	if err != nil {
		return e.info.Layers
	}
	return max(n, e.info.Layers)
}

// warmUp decodes two tokens, one after the other. It brings the weights into memory, shows at load time whether the
// model can compute, and measures a token's bytes in the KV pool as the difference of what two states have of it, which
// is right for every architecture (grouped heads by layer, latent attention, layers that share a cache).
func (e *engine) warmUp() error {
	t := e.vocab.BOS()
	if t == runtime.NoToken {
		t = 0
	}
	if e.encoder { // without a memory
		return e.tryDecode(func() { e.batch.AddFor(t, 0, 0, runtime.RowEmbedding) })
	}
	var size [2]int
	for i := range size {
		if err := e.tryDecode(func() { e.batch.Add(t, runtime.Pos(i), 0, true) }); err != nil {
			return err
		}
		size[i] = e.stateRows(i + 1)
	}
	e.info.KVBytesPerToken = max(size[1]-size[0], 0)
	e.caps.PersistentGraph = e.GraphsReused() > 0
	C.llama_memory_clear(e.mem, false) // with the data it would touch the memory of all cells
	if e.caps.Device == runtime.DeviceCPU {
		C.uma_give_back_rows(e.ctx)
	}
	return nil
}

// tryDecode computes what add puts into the batch, and leaves no rows.
func (e *engine) tryDecode(add func()) error {
	e.batch.Reset()
	add()
	err := e.Decode()
	e.batch.Reset()
	if e.rows = 0; err != nil {
		return modelError(e.info.Path, "the first decode failed: "+err.Error())
	}
	return nil
}

// GraphsReused implements runtime.GraphReuser.
func (e *engine) GraphsReused() uint64 {
	e.closed.AssertOpen()
	return uint64(C.llama_perf_context(e.ctx).n_reused)
}
