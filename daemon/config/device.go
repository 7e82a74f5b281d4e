package config

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// The memory of devices. A discrete device has its own, which the models on it share: a demand for it goes beside that
// for the host's. An integrated one has the host's. Which layers are on which device, place.go decides.

// Values of --gpu-layers besides numbers, as llama-server has them.
const (
	AutoLayers = -1 // as many as fit
	AllLayers  = -2
)

// maxGPULayers is the largest number for --gpu-layers.
const maxGPULayers = 1 << 16

// layersFlag is --gpu-layers.
type layersFlag struct{ n *int }

func (f layersFlag) String() string {
	switch {
	case f.n == nil || *f.n == AutoLayers:
		return "auto"
	case *f.n == AllLayers:
		return "all"
	}
	return strconv.Itoa(*f.n)
}

func (f layersFlag) Set(text string) error {
	text = strings.ToLower(strings.TrimSpace(text))
	switch text {
	case "auto":
		*f.n = AutoLayers
		return nil
	case "all":
		*f.n = AllLayers
		return nil
	}
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return err
	case err != nil:
		return errors.New("it must be a whole number, auto or all")
	case n < AllLayers || n > maxGPULayers:
		return fmt.Errorf("it must be 0…%d, auto (-1) or all (-2)", maxGPULayers)
	}
	*f.n = n
	return nil
}

func (layersFlag) Type() string { return "layers" }

// WantsDevice reports whether --gpu-layers asks for a device, so that none is an error.
func (c *Config) WantsDevice() bool { return c.GPULayers > 0 || c.GPULayers == AllLayers }

// GPULayersText returns the value of --gpu-layers.
func (c *Config) GPULayersText() string { return layersFlag{&c.GPULayers}.String() }

// OnDevice reports whether layers are, or may be, on a device.
func (c *Config) OnDevice() bool {
	return c.GPULayers != 0 && len(c.Backends.Devices) > 0 && (c.Place == nil || len(c.Place.On) > 0)
}

// DeviceDemand is the memory of discrete devices, in bytes, that an engine process takes, as a function of its context
// and of the layers that are there. The zero value takes none. It is estimated from the header; the front replaces it
// by the engine's figures when the model is loaded.
type DeviceDemand struct {
	// Layers can be on devices; the output is the last one. Of n layers, these are the last n.
	Layers []LayerDemand
	// Least and Most are the number of layers: they differ where it is chosen by memory.
	Least, Most int
	// Each and EachToken, of context, are taken of every device that has a layer: the driver's memory, the buffers of a
	// pass.
	Each, EachToken int64
	// Projector and Draft are on one device each: the projector of images, and the draft model with its cells.
	Projector, Draft int64

	file string // of the weights, among Mapped
}

// LayerDemand is the memory of a layer, in bytes; experts that --n-cpu-moe keeps in the host's memory are not in it.
type LayerDemand struct {
	Fixed    int64 // of the device: weights and states
	PerToken int64 // of the device, for each token of context: KV cells
	// What the host no longer needs when the layer is on a device: of Demand's Fixed, CellBytes and Mapped.
	HostFixed, HostCells, HostMapped int64
}

// DriverBytes is the memory of a device that a driver takes for each process, in bytes: its context, kernels and pools.
const DriverBytes = 512 << 20

// projectorBuffers is the estimate of a projector's memory beside its weights, in bytes: the activations and attention
// scores of a picture. Pictures of 1,024 patches need less, such of 4,096 more; the engine's figure replaces it.
const projectorBuffers = 256 << 20

// Room is the memory of a device that models may take.
type Room struct {
	Device string
	Bytes  int64
}

// Rooms returns the memory of discrete devices that models may take: what was free when the devices were looked at,
// without a part for what grows. nil: no layers are on devices, the memory is the host's, or it is not known.
func (c *Config) Rooms() (list []Room) {
	if c.GPULayers == 0 {
		return nil
	}
	for i := range c.Backends.Devices {
		d := &c.Backends.Devices[i]
		if d.Kind != runtime.DeviceGPU {
			continue
		}
		if d.Free == 0 || d.Free > absurd {
			return nil
		}
		list = append(list, Room{d.Name, int64(autoUse * float64(d.Free))})
	}
	return list
}

// hostMemory reports whether the devices that layers may be on have the host's memory, and how many bytes of it they
// can use at the moment; 0: the driver does not tell.
func (c *Config) hostMemory() (bytes uint64, ok bool) {
	if !c.OnDevice() {
		return 0, false
	}
	for i := range c.Backends.Devices {
		switch d := &c.Backends.Devices[i]; d.Kind {
		case runtime.DeviceIGPU, runtime.DeviceMetal:
			bytes = max(bytes, d.Free)
		default:
			return 0, false
		}
	}
	return bytes, true
}

// NoHostTier reports whether the KV cells of a device lie in the host's memory, where a tier of the host's memory would
// be a second copy beside them. --cache-ram with a size, --cache-dir, to which parts go through it, and thoughts that
// are to be kept there, have a tier nevertheless.
func (c *Config) NoHostTier() bool {
	_, host := c.hostMemory()
	return host && c.CacheRAM.Auto && c.CacheDir == "" && !c.NoKVOffload && c.ThinkEvict != core.OffloadThoughts
}

// deviceDemand returns what a model with this header takes of the devices, of whose demand d has the rest; fixed and
// mapped are its weights, as d counts them.
func (c *Config) deviceDemand(info *gguf.Info, d *Demand, fixed, mapped int64) (DeviceDemand, error) {
	if len(c.Rooms()) == 0 {
		return DeviceDemand{}, nil
	}
	weights := info.Placed()
	cells, err := info.LayerKVBytes(c.CacheTypeK, c.CacheTypeV)
	if err != nil {
		return DeviceDemand{}, err
	}
	out := DeviceDemand{Each: DriverBytes + c.computeBytes(info), EachToken: d.PassBytes, file: realPath(info.Path)}
	all := float64(max(info.TensorBytes, 1))
	add := func(bytes, copied uint64, cells, state int64) {
		bytes = min(bytes, absurd)
		share := float64(bytes-min(copied, bytes)) / all
		l := LayerDemand{Fixed: int64(bytes) + state, HostFixed: int64(share*float64(fixed)) + state,
			HostMapped: int64(share * float64(mapped))}
		if !c.NoKVOffload {
			l.PerToken, l.HostCells = cells, cells
		}
		out.Layers = append(out.Layers, l)
	}
	n := len(weights.Layers)
	host := runtime.HostExperts(n, n+1, c.CPUMoE) // the first so many layers leave their experts to the host
	for i, bytes := range weights.Layers {
		if i < host {
			bytes -= weights.Experts[i]
		}
		add(bytes, 0, cells[i], d.States/int64(n))
	}
	add(weights.Output, weights.Copied, 0, 0)
	switch n := len(out.Layers); {
	case c.GPULayers == AutoLayers:
		out.Most = n
	case c.GPULayers == AllLayers:
		out.Least, out.Most = n, n
	default:
		out.Least = min(c.GPULayers, n)
		out.Most = out.Least
	}
	out.Projector = c.projectorBytes()
	return out, nil
}

// projectorBytes estimates the memory of the projector of images; 0 without one.
func (c *Config) projectorBytes() int64 {
	st, err := os.Stat(c.Projector())
	if err != nil || !st.Mode().IsRegular() {
		return 0
	}
	return min(st.Size(), absurd) + projectorBuffers
}

// computeBytes returns the largest buffers of a pass that do not depend on the context: the logits of its rows, and
// the widest products in F32.
func (c *Config) computeBytes(info *gguf.Info) int64 {
	wide := 4 * info.Embedding
	for _, n := range info.FeedForward {
		wide = max(wide, 4*info.Embedding+3*n)
	}
	return 4 * int64(min(c.UBatchSize, c.BatchSize)) * (int64(info.VocabSize) + min(max(wide, 0), 1<<32))
}

// Placed returns d with the last n layers of the model on devices: what the host still needs.
func (d *Demand) Placed(n int) Demand {
	out := *d
	if n <= 0 || len(d.Device.Layers) == 0 {
		return out
	}
	mapped := int64(0)
	for _, l := range d.Device.last(n) {
		out.Fixed -= l.HostFixed
		out.CellBytes -= l.HostCells
		mapped += l.HostMapped
	}
	out.Fixed -= d.Device.Projector
	out.Fixed, out.CellBytes = max(out.Fixed, 0), max(out.CellBytes, 0)
	out.Mapped = map[string]int64{}
	for file, bytes := range d.Mapped {
		if file == d.Device.file {
			bytes = max(bytes-mapped, 0)
		}
		out.Mapped[file] = bytes
	}
	return out
}

// last returns the last n layers.
func (d *DeviceDemand) last(n int) []LayerDemand {
	return d.Layers[max(len(d.Layers)-n, 0):]
}

// sum returns the memory of layers with a context of so many tokens.
func (d *DeviceDemand) sum(layers []LayerDemand, tokens int) (bytes int64) {
	for i := range layers {
		bytes = add(bytes, layers[i].bytes(tokens))
	}
	return bytes
}

func (l *LayerDemand) bytes(tokens int) int64 { return add(l.Fixed, mul(l.PerToken, int64(tokens))) }

func (d *DeviceDemand) each(tokens int) int64 { return add(d.Each, mul(d.EachToken, int64(tokens))) }

// add and mul saturate: headers can claim anything.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func mul(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return a * b
}
