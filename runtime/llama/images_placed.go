//go:build cgo && llama_engine && !llama_no_images

package llama

import "github.com/uma-serve/uma-serve/runtime"

// placeProjector adds what the projector takes of a device to what the model has there.
func (e *engine) placeProjector(device string, bytes uint64) {
	for i := range e.caps.Placed {
		if e.caps.Placed[i].Device == device {
			e.caps.Placed[i].Projector = bytes
			return
		}
	}
	e.caps.Placed = append(e.caps.Placed, runtime.DeviceMemory{Device: device, Projector: bytes})
}
