// Package mach asks macOS what golang.org/x/sys does not: the machine's virtual memory, the memory of this process, and
// the class of a thread. It calls libSystem without cgo, as x/sys does, so that programs without an engine have it too.
//
// On other systems every call returns ErrSystem. What the kernel's answers mean is decoded here on every system, and
// tested there.
package mach

import (
	"errors"
	"fmt"
)

// ErrSystem: this system is not macOS.
var ErrSystem = errors.New("mach: not supported by this system")

// VM is the machine's virtual memory, in pages.
type VM struct {
	Free     uint64 // speculative ones, which were read ahead, included
	Inactive uint64 // not used lately: reclaimed when memory is short
}

// Available returns the memory in bytes that programs can have without swapping, for pages of pageBytes: what Activity
// Monitor's tools and psutil call available, free and inactive pages together.
func (v VM) Available(pageBytes uint64) uint64 { return (v.Free + v.Inactive) * pageBytes }

// The structures of host_statistics64 (mach/vm_statistics.h) and task_info (mach/task_info.h), in words of four bytes.
const (
	vmFlavor = 4  // HOST_VM_INFO64
	vmWords  = 38 // HOST_VM_INFO64_COUNT of struct vm_statistics64 up to total_uncompressed_pages_in_compressor
	vmLeast  = 4  // free_count, active_count, inactive_count, wire_count

	taskFlavor = 20 // MACH_TASK_BASIC_INFO
	taskWords  = 12 // MACH_TASK_BASIC_INFO_COUNT of struct mach_task_basic_info
	taskLeast  = 4  // virtual_size and resident_size, of 64 bits each
)

// decodeVM reads struct vm_statistics64: free_count is its first word and inactive_count its third.
func decodeVM(words []uint32) (VM, error) {
	if len(words) < vmLeast {
		return VM{}, fmt.Errorf("mach: host_statistics64 returned %d words, at least %d were asked for", len(words),
			vmLeast)
	}
	return VM{Free: uint64(words[0]), Inactive: uint64(words[2])}, nil
}

// decodeTask reads resident_size of struct mach_task_basic_info: the third and fourth word, the lower half first.
func decodeTask(words []uint32) (resident uint64, err error) {
	if len(words) < taskLeast {
		return 0, fmt.Errorf("mach: task_info returned %d words, at least %d were asked for", len(words), taskLeast)
	}
	return uint64(words[2]) | uint64(words[3])<<32, nil
}

// Class is the quality of service of a thread (sys/qos.h). On Apple silicon it decides between the kinds of cores too.
type Class uint32

const (
	Interactive Class = 0x21 // QOS_CLASS_USER_INTERACTIVE: a person waits for each of its results
	Utility     Class = 0x11 // QOS_CLASS_UTILITY: a person does not wait for it
)

// kernelError is the error of a kern_return_t (mach/kern_return.h), nil for KERN_SUCCESS.
func kernelError(call string, code uintptr) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("mach: %s returned %d", call, int32(code))
}
