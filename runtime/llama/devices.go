//go:build cgo && (llama_engine || llama_system)

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

// refused are the libraries that start has not used; said are the errors beside. Constant after start.
var (
	refused []runtime.Refused
	said    string
)

// start initialises llama.cpp, once per process.
var start = sync.OnceFunc(func() {
	C.llama_backend_init()
	keepWeights()
	registerKernels()
	said = drainLogs(slog.LevelError)
	for _, library := range backendLibraries() {
		before := C.ggml_backend_reg_count()
		loadBackend(library)
		// Drained here, so that no model's error has the reason why a library is not used.
		why := drainLogs(slog.LevelError)
		if C.ggml_backend_reg_count() == before {
			refused = append(refused, runtime.Refused{Path: library, Why: why})
		} else if why != "" {
			said = strings.Join(slices.DeleteFunc([]string{said, why}, func(s string) bool { return s == "" }), "; ")
		}
	}
})

// loadBackend loads the library of a device back end; the log says why one is not used.
func loadBackend(path string) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	C.uma_load_backend(p)
}

// Backends returns the back ends besides the processor's, and the devices that they see now.
func Backends() runtime.Backends {
	start()
	b := runtime.Backends{Refused: slices.Clone(refused), Said: said}
	for i := range C.ggml_backend_reg_count() {
		name := C.GoString(C.ggml_backend_reg_name(C.ggml_backend_reg_get(i)))
		if name != "CPU" && name != "BLAS" {
			b.Names = append(b.Names, name)
		}
	}
	for i := range C.ggml_backend_dev_count() {
		d := C.ggml_backend_dev_get(i)
		kind := deviceKind(d)
		if kind == runtime.DeviceCPU {
			continue
		}
		var free, total C.size_t
		C.ggml_backend_dev_memory(d, &free, &total)
		b.Devices = append(b.Devices, runtime.Device{Name: C.GoString(C.ggml_backend_dev_name(d)),
			Description: C.GoString(C.ggml_backend_dev_description(d)), Backend: backendOf(d), Kind: kind,
			Free: uint64(free), Total: uint64(total)})
	}
	if why := drainLogs(slog.LevelError); why != "" {
		b.Said = strings.Trim(b.Said+"; "+why, "; ")
	}
	return b
}

func backendOf(d C.ggml_backend_dev_t) string {
	return C.GoString(C.ggml_backend_reg_name(C.ggml_backend_dev_backend_reg(d)))
}

// deviceKind is DeviceCPU for the processor and for what computes beside it.
func deviceKind(d C.ggml_backend_dev_t) runtime.DeviceKind {
	switch C.ggml_backend_dev_type(d) {
	case C.GGML_BACKEND_DEVICE_TYPE_GPU, C.GGML_BACKEND_DEVICE_TYPE_IGPU:
		switch {
		case strings.HasPrefix(backendOf(d), "M") && backendOf(d) != "MUSA": // Metal, MTL
			return runtime.DeviceMetal
		case C.ggml_backend_dev_type(d) == C.GGML_BACKEND_DEVICE_TYPE_IGPU:
			return runtime.DeviceIGPU
		}
		return runtime.DeviceGPU
	}
	return runtime.DeviceCPU
}
