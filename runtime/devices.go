package runtime

// Backends are the engine library's back ends besides the processor's, and the devices that they see.
type Backends struct {
	Names   []string  `json:"names,omitempty"` // as the library calls them: "Vulkan", "CUDA"
	Devices []Device  `json:"devices,omitempty"`
	Refused []Refused `json:"refused,omitempty"`
	// Said are the library's errors while it looked for devices; "" = none.
	Said string `json:"said,omitempty"`
}

// Device is a device that a model's layers can be on.
type Device struct {
	Name        string     `json:"name"` // "Vulkan0"
	Description string     `json:"description"`
	Backend     string     `json:"backend"`
	Kind        DeviceKind `json:"kind"`
	// In bytes, when it was looked at; 0 where the driver does not tell.
	Free  uint64 `json:"free_bytes"`
	Total uint64 `json:"total_bytes"`
}

// DeviceLayers says how many layers of a model are on a device.
type DeviceLayers struct {
	Device string `json:"device"` // a Device's name
	Layers int    `json:"layers"`
}

// Refused is the library of a back end that is not used.
type Refused struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// DeviceMemory is the memory of one device that an open model takes, in bytes.
type DeviceMemory struct {
	Device  string `json:"device"` // a Device's name; "CPU"
	Weights uint64 `json:"weights_bytes"`
	KV      uint64 `json:"kv_bytes"` // cells, and states of recurrent layers
	Compute uint64 `json:"compute_bytes"`
	// Projector has the weights and buffers of the projector of images.
	Projector uint64 `json:"projector_bytes,omitempty"`
}

// WithProjector adds the memory that a projector takes of a device to what a model has there.
func WithProjector(list []DeviceMemory, device string, bytes uint64) []DeviceMemory {
	for i := range list {
		if list[i].Device == device {
			list[i].Projector = bytes
			return list
		}
	}
	return append(list, DeviceMemory{Device: device, Projector: bytes})
}
