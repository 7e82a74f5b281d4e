//go:build cgo && (llama_engine || llama_system)

package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama/known"
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
	for _, library := range known.BackendLibraries() {
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
	seen := map[string]bool{}
	for i := range C.ggml_backend_dev_count() {
		d := C.ggml_backend_dev_get(i)
		kind := deviceKind(d)
		if kind == runtime.DeviceCPU || sameCard(d, seen) {
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

// placedOn returns the devices of a model, ended by a nil, and the layers on each, as llama.cpp wants them; nil where
// it chooses.
func placedOn(list []runtime.DeviceLayers) (devices []C.ggml_backend_dev_t, split []C.float, err error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	start()
	split = make([]C.float, max(int(C.llama_max_devices()), len(list)))
	for i, on := range list {
		d := deviceNamed(on.Device)
		if d == nil {
			return nil, nil, fmt.Errorf("there is no device %q", on.Device)
		}
		devices, split[i] = append(devices, d), C.float(on.Layers)
	}
	return append(devices, nil), split, nil
}

// firstOf returns the first device of a model, nil where llama.cpp chooses.
func firstOf(list []runtime.DeviceLayers) C.ggml_backend_dev_t {
	if len(list) == 0 {
		return nil
	}
	return deviceNamed(list[0].Device)
}

// deviceNamed returns a device by its name in ggml, nil if there is none.
func deviceNamed(name string) C.ggml_backend_dev_t {
	for i := range C.ggml_backend_dev_count() {
		if d := C.ggml_backend_dev_get(i); C.GoString(C.ggml_backend_dev_name(d)) == name {
			return d
		}
	}
	return nil
}

// sameCard reports whether d is a card that another back end has shown before, as llama.cpp tells them apart.
func sameCard(d C.ggml_backend_dev_t, seen map[string]bool) bool {
	var props C.struct_ggml_backend_dev_props
	C.ggml_backend_dev_get_props(d, &props)
	if props.device_id == nil || C.ggml_backend_dev_type(d) != C.GGML_BACKEND_DEVICE_TYPE_GPU {
		return false
	}
	id := C.GoString(props.device_id)
	if seen[id] {
		return true
	}
	seen[id] = true
	return false
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
