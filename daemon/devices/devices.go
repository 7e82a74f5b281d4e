// Package devices finds out which devices there are, and says why there is none.
package devices

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/host/drivers"
	"github.com/uma-serve/uma-serve/runtime"
)

// System returns the machine as the drivers of this process and of engine processes see it.
func System() drivers.System {
	s := drivers.System{Getenv: os.Getenv}
	if dir, err := os.UserCacheDir(); err == nil {
		s.Cache = filepath.Join(dir, "uma-serve", "shaders")
	}
	return s
}

// Check tells the log why no device is used though there is a back end for one. It is an error where
// --gpu-layers asks for one.
func Check(c *config.Config, log *slog.Logger) error {
	why := missing(&c.Backends, System())
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

// missing returns why there is no device, a reason for each back end; "" where there is no back end.
func missing(b *runtime.Backends, sys drivers.System) string {
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
