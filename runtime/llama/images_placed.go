//go:build cgo && llama_engine && !llama_no_images

package llama

import "github.com/uma-serve/uma-serve/runtime"

// withProjector adds what the projector takes of a device to what the model has there.
func withProjector(list []runtime.DeviceMemory, device string, bytes uint64) []runtime.DeviceMemory {
	for i := range list {
		if list[i].Device == device {
			list[i].Projector = bytes
			return list
		}
	}
	return append(list, runtime.DeviceMemory{Device: device, Projector: bytes})
}
