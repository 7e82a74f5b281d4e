package opening

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// errHidden is of an engine process that does not find the devices that are there without the sandbox.
var errHidden = errors.New("the sandbox of the engine process hides the device")

// HiddenDevice tells the log that the model is on the processor though devices were found before the process was
// confined. It is an error where --gpu-layers asks for one. c is the configuration that the model was opened with.
func HiddenDevice(c *config.Config, caps *runtime.Capabilities, confined bool, log *slog.Logger) error {
	if !c.OnDevice() || caps.Devices > 1 {
		return nil
	}
	name := c.Backends.Devices[0].Description
	if !confined { // its log says why
		if c.WantsDevice() {
			return fmt.Errorf("--gpu-layers is %s, and the engine does not compute on %s", c.GPULayersText(), name)
		}
		return nil
	}
	if c.WantsDevice() {
		return fmt.Errorf("--gpu-layers is %s, and %w %s: the log has the files that were refused; --sandbox=false "+
			"uses it, without the sandbox", c.GPULayersText(), errHidden, name)
	}
	log.Warn("no device is used: "+errHidden.Error()+"; the files that were refused are in this log, and "+
		"--sandbox=false uses the device, without the sandbox", "device", name)
	return nil
}

// TellLayers logs how many layers are on devices where they are not all.
func TellLayers(c *config.Config, path string, log *slog.Logger) {
	info, err := gguf.Inspect(path)
	if err != nil || c.Place == nil || c.GPULayers != config.AutoLayers {
		return
	}
	if n, all := c.Place.Layers(), int(info.Layers)+1; n < all {
		log.Warn("not all layers fit on devices: the processor computes the others", "layers", n, "of", all,
			"context", c.Place.Tokens)
	}
}

// OnDevices returns what the process has in the memory of discrete devices, in bytes by device, by the engine's
// figures: the model with its projector, and the draft model.
func OnDevices(there []runtime.Device, model, draft []runtime.DeviceMemory) map[string]int64 {
	out := map[string]int64{}
	count := func(list []runtime.DeviceMemory) {
		for _, p := range list {
			if discrete(there, p.Device) {
				out[p.Device] += int64(p.Weights + p.KV + p.Compute + p.Projector)
			}
		}
	}
	count(model)
	count(draft)
	return out
}

// discrete reports whether a discrete device has this name.
func discrete(there []runtime.Device, name string) bool {
	return slices.ContainsFunc(there, func(d runtime.Device) bool {
		return d.Name == name && d.Kind == runtime.DeviceGPU
	})
}

// Devices returns the info report's part about devices: those that there are, and what the model and the draft model
// have on each. The processor is among them where a model is on several.
func Devices(there []runtime.Device, model, draft []runtime.DeviceMemory) (list []reports.InfoDevice) {
	for _, d := range there {
		list = append(list, reports.InfoDevice{Device: d})
	}
	of := func(name string) *reports.InfoDevice {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
		list = append(list, reports.InfoDevice{Device: runtime.Device{Name: name, Kind: runtime.DeviceCPU}})
		return &list[len(list)-1]
	}
	for _, p := range model {
		d := of(p.Device)
		d.Weights, d.KV, d.Compute, d.Projector = p.Weights, p.KV, p.Compute, p.Projector
	}
	for _, p := range draft {
		of(p.Device).Draft = p.Weights + p.KV + p.Compute
	}
	return list
}
