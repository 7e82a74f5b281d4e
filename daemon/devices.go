package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/host/drivers"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// Drivers returns the machine as the drivers of this process and of engine processes see it.
func Drivers() drivers.System {
	s := drivers.System{Getenv: os.Getenv}
	if dir, err := os.UserCacheDir(); err == nil {
		s.Cache = filepath.Join(dir, "uma-serve", "shaders")
	}
	return s
}

// CheckDevices tells the log why no device is used though there is a back end for one. It is an error where
// --gpu-layers asks for one.
func CheckDevices(c *config.Config, log *slog.Logger) error {
	why := noDevice(&c.Backends, Drivers())
	switch {
	case c.GPULayers == 0 || len(c.Backends.Devices) > 0:
		return nil
	case c.WantsDevice():
		if why == "" {
			why = c.Backends.Said // the drivers could not be asked
		}
		if why == "" {
			why = "this uma-serve has no back end for one (make backend-cuda or make backend-vulkan, docs/engines.md)"
		}
		return fmt.Errorf("--gpu-layers is %s, and no device can be used: %s; --gpu-layers 0 computes on the processor",
			c.GPULayersText(), why)
	case why != "":
		log.Warn("no device is used: the processor computes (--gpu-layers 0 says that it should)", "why", why)
	}
	return nil
}

// noDevice returns why there is no device, a reason for each back end; "" where there is no back end.
func noDevice(b *runtime.Backends, sys drivers.System) string {
	var why []string
	for _, name := range b.Names {
		why = append(why, name+": "+sys.Missing(name, b.Said))
	}
	for _, r := range b.Refused {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(r.Path), "libggml-"), ".so")
		why = append(why, name+": "+sys.Missing(name, r.Why))
	}
	return strings.Join(why, "; ")
}

// errHidden is of an engine process that does not find the devices that are there without the sandbox.
var errHidden = errors.New("the sandbox of the engine process hides the device")

// hiddenDevice tells the log that the model is on the processor though devices were found before the process was
// confined. It is an error where --gpu-layers asks for one. c is the configuration that the model was opened with.
func (s *Server) hiddenDevice(c *config.Config, caps *runtime.Capabilities) error {
	if !c.OnDevice() || caps.Devices > 1 {
		return nil
	}
	name := c.Backends.Devices[0].Description
	if e := s.parts.engine; e == nil || e.box == nil { // its log says why
		if c.WantsDevice() {
			return fmt.Errorf("--gpu-layers is %s, and the engine does not compute on %s", c.GPULayersText(), name)
		}
		return nil
	}
	if c.WantsDevice() {
		return fmt.Errorf("--gpu-layers is %s, and %w %s: the log has the files that were refused; --sandbox=false "+
			"uses it, without the sandbox", c.GPULayersText(), errHidden, name)
	}
	s.log.Warn("no device is used: "+errHidden.Error()+"; the files that were refused are in this log, and "+
		"--sandbox=false uses the device, without the sandbox", "device", name)
	return nil
}

// tellLayers logs how many layers are on devices where they are not all.
func (s *Server) tellLayers(c *config.Config, path string) {
	info, err := gguf.Inspect(path)
	if err != nil || c.Place == nil || c.GPULayers != config.AutoLayers {
		return
	}
	if n, all := c.Place.Layers(), int(info.Layers)+1; n < all {
		s.log.Warn("not all layers fit on devices: the processor computes the others", "layers", n, "of", all,
			"context", c.Place.Tokens)
	}
}

// onDevices returns what the process has in the memory of discrete devices, in bytes by device, by the engine's
// figures: the model with its projector, and the draft model.
func (s *Server) onDevices() map[string]int64 {
	out := map[string]int64{}
	count := func(list []runtime.DeviceMemory) {
		for _, p := range list {
			if s.discrete(p.Device) {
				out[p.Device] += int64(p.Weights + p.KV + p.Compute + p.Projector)
			}
		}
	}
	count(s.model.Load().Caps.Placed)
	count(s.draft.Placed())
	return out
}

// discrete reports whether there is a device of this name with memory of its own.
func (s *Server) discrete(name string) bool {
	return slices.ContainsFunc(s.cfg.Backends.Devices, func(d runtime.Device) bool {
		return d.Name == name && d.Kind == runtime.DeviceGPU
	})
}

// devices returns the info report's part about devices: those that there are, and what the model has on each. The
// processor is among them where a model is on several.
func (s *Server) devices() (list []wire.InfoDevice) {
	for _, d := range s.cfg.Backends.Devices {
		list = append(list, wire.InfoDevice{Device: d})
	}
	m := s.model.Load()
	if m == nil {
		return list
	}
	of := func(name string) *wire.InfoDevice {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
		list = append(list, wire.InfoDevice{Device: runtime.Device{Name: name, Kind: runtime.DeviceCPU}})
		return &list[len(list)-1]
	}
	for _, p := range m.Caps.Placed {
		d := of(p.Device)
		d.Weights, d.KV, d.Compute, d.Projector = p.Weights, p.KV, p.Compute, p.Projector
	}
	for _, p := range s.draft.Placed() {
		of(p.Device).Draft = p.Weights + p.KV + p.Compute
	}
	return list
}
