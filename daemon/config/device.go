package config

import (
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// The memory of devices. A discrete device has its own, which the models on it share: a demand for it goes beside that
// for the host's. An integrated one has the host's.

// DeviceDemand is the memory of discrete devices, in bytes, that an engine process takes, as a function of its context.
// The zero value takes none. It is estimated from the header; the front replaces it by the engine's figures when the
// model is loaded.
type DeviceDemand struct {
	Fixed    int64 // weights, states, buffers, the draft model
	PerToken int64 // of context: KV cells, and what a pass needs
}

// Bytes returns the demand with a context of so many tokens.
func (d DeviceDemand) Bytes(tokens int) int64 { return d.Fixed + d.PerToken*int64(tokens) }

// FitDevice returns the largest context for which Device is at most room; 0: there is none.
func (d *Demand) FitDevice(room int64) int {
	if d.Device.Bytes(d.Most) <= room {
		return d.Most
	}
	if d.Device.PerToken <= 0 || d.Device.Bytes(d.Least) > room {
		return 0
	}
	n := int((room - d.Device.Fixed) / d.Device.PerToken)
	return max(d.Least, n/contextStep*contextStep)
}

// onDevice reports whether cells and weights may be in the memory of a device.
func (c *Config) onDevice() bool { return c.GPULayers != 0 && len(c.Backends.Devices) > 0 }

// DriverBytes is the memory of a device that a driver takes for each process, in bytes: its context, kernels and pools.
const DriverBytes = 512 << 20

// DeviceRoom returns the memory of discrete devices that models may take, in bytes: what was free when the devices were
// looked at, without a part for what grows. Layers are spread over several devices by their free memory, so that they
// count as one. 0: it is not known, or the memory is the host's.
func (c *Config) DeviceRoom() int64 {
	free := 0.0
	for i := range c.Backends.Devices {
		if d := &c.Backends.Devices[i]; d.Kind == runtime.DeviceGPU {
			free += float64(d.Free)
		}
	}
	if c.GPULayers == 0 || free > absurd {
		return 0
	}
	return int64(autoUse * free)
}

// deviceDemand returns what a model with this header takes of the devices, of whose demand d has the rest.
func (c *Config) deviceDemand(info *gguf.Info, d *Demand) DeviceDemand {
	if c.DeviceRoom() == 0 {
		return DeviceDemand{}
	}
	all := max(info.Layers, 1) + 1 // the last one is the output
	on := all
	if c.GPULayers > 0 {
		on = min(int64(c.GPULayers), all)
	}
	weights := part(int64(min(info.TensorBytes, absurd)), on, all)
	first := all - on
	experts := info.ExpertBytesOf(first, first+int64(runtime.HostExperts(int(all-1), int(on), c.CPUMoE)))
	out := DeviceDemand{PerToken: d.PassBytes, Fixed: DriverBytes + c.computeBytes(info) +
		max(weights-int64(min(experts, absurd)), 0) + part(d.States, on, all)}
	if !c.NoKVOffload {
		out.PerToken += part(d.CellBytes, min(on, all-1), all-1)
	}
	return out
}

// part returns n·on/all.
func part(n, on, all int64) int64 { return int64(float64(n) * float64(on) / float64(all)) }

// computeBytes returns the largest buffers of a pass that do not depend on the context: the logits of its rows, and
// the widest products in F32.
func (c *Config) computeBytes(info *gguf.Info) int64 {
	wide := 4 * info.Embedding
	for _, n := range info.FeedForward {
		wide = max(wide, 4*info.Embedding+3*n)
	}
	return 4 * int64(min(c.UBatchSize, c.BatchSize)) * (int64(info.VocabSize) + min(max(wide, 0), 1<<32))
}
