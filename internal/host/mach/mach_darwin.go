package mach

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// The two ports are asked for once: each call adds a reference to the port.
var (
	host = sync.OnceValue(func() uintptr { return call(hostSelf, 0, 0, 0, 0) })
	task = sync.OnceValue(func() uintptr { return call(taskSelf, 0, 0, 0, 0) })
)

// Memory returns the machine's virtual memory.
func Memory() (VM, error) {
	var words [vmWords]uint32
	n := uint32(len(words))
	code := call(hostStatistics64, host(), vmFlavor, uintptr(unsafe.Pointer(&words)), uintptr(unsafe.Pointer(&n)))
	if err := kernelError("host_statistics64", code); err != nil {
		return VM{}, err
	}
	return decodeVM(words[:min(int(n), len(words))])
}

// Resident returns the resident set of this process in bytes.
func Resident() (uint64, error) {
	var words [taskWords]uint32
	n := uint32(len(words))
	code := call(taskInfo, task(), taskFlavor, uintptr(unsafe.Pointer(&words)), uintptr(unsafe.Pointer(&n)))
	if err := kernelError("task_info", code); err != nil {
		return 0, err
	}
	return decodeTask(words[:min(int(n), len(words))])
}

// SetClass sets the class of the calling thread, which belongs to a goroutine that is locked to it.
func SetClass(c Class) error {
	if code := call(setClass, uintptr(c), 0, 0, 0); code != 0 {
		return fmt.Errorf("mach: pthread_set_qos_class_self_np: %w", syscall.Errno(code))
	}
	return nil
}

// The addresses of the jumps in calls_darwin.s.
var hostSelf, taskSelf, hostStatistics64, taskInfo, setClass uintptr

//go:cgo_import_dynamic libc_mach_host_self mach_host_self "/usr/lib/libSystem.B.dylib"
//go:cgo_import_dynamic libc_task_self_trap task_self_trap "/usr/lib/libSystem.B.dylib"
//go:cgo_import_dynamic libc_host_statistics64 host_statistics64 "/usr/lib/libSystem.B.dylib"
//go:cgo_import_dynamic libc_task_info task_info "/usr/lib/libSystem.B.dylib"
//go:cgo_import_dynamic libc_set_class pthread_set_qos_class_self_np "/usr/lib/libSystem.B.dylib"

// call calls a function of libSystem on the system's stack and returns its result.
//
// Pointers among the arguments stay valid: as for syscall.Syscall, the conversion to uintptr is in the argument
// list, and the function below is one that the compiler knows to keep them for.
//
//go:uintptrescapes
func call(fn, a1, a2, a3, a4 uintptr) uintptr {
	r, _, _ := libcCall(fn, a1, a2, a3, a4, 0, 0)
	return r
}

// libcCall is package syscall's way into libSystem, which golang.org/x/sys uses too.
//
//go:linkname libcCall syscall.syscall6
func libcCall(fn, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, err syscall.Errno)
