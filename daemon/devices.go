package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/host/drivers"
	"github.com/uma-serve/uma-serve/ipc/wire"
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
	case c.GPULayers > 0:
		if why == "" {
			why = c.Backends.Said // the drivers could not be asked
		}
		if why == "" {
			why = "this uma-serve has no back end for one (make backend-cuda or make backend-vulkan, docs/engines.md)"
		}
		return fmt.Errorf("--gpu-layers is %d, and no device can be used: %s; --gpu-layers 0 computes on the processor",
			c.GPULayers, why)
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
// confined. It is an error where --gpu-layers asks for one.
func (s *Server) hiddenDevice(caps *runtime.Capabilities) error {
	if s.cfg.GPULayers == 0 || len(s.cfg.Backends.Devices) == 0 || caps.Devices > 1 {
		return nil
	}
	name := s.cfg.Backends.Devices[0].Description
	if e := s.parts.engine; e == nil || e.box == nil { // its log says why
		if s.cfg.GPULayers > 0 {
			return fmt.Errorf("--gpu-layers is %d, and the engine does not compute on %s", s.cfg.GPULayers, name)
		}
		return nil
	}
	if s.cfg.GPULayers > 0 {
		return fmt.Errorf("--gpu-layers is %d, and %w %s: the log has the files that were refused; --sandbox=false "+
			"uses it, without the sandbox", s.cfg.GPULayers, errHidden, name)
	}
	s.log.Warn("no device is used: "+errHidden.Error()+"; the files that were refused are in this log, and "+
		"--sandbox=false uses the device, without the sandbox", "device", name)
	return nil
}

// onDevices returns what the model has in the memory of discrete devices, in bytes, by the engine's figures.
func (s *Server) onDevices() (n int64) {
	list := s.devices()
	for i := range list {
		if d := &list[i]; d.Kind == runtime.DeviceGPU {
			n += int64(d.Weights + d.KV + d.Compute)
		}
	}
	return n
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
	for _, p := range m.Caps.Placed {
		at := -1
		for i := range list {
			if list[i].Name == p.Device {
				at = i
			}
		}
		if at < 0 {
			at = len(list)
			list = append(list, wire.InfoDevice{Device: runtime.Device{Name: p.Device, Kind: runtime.DeviceCPU}})
		}
		list[at].Weights, list[at].KV, list[at].Compute = p.Weights, p.KV, p.Compute
	}
	return list
}
