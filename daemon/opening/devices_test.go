package opening

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/runtime"
)

var oneDevice = runtime.Backends{Names: []string{"Vulkan"}, Devices: []runtime.Device{
	{Name: "Vulkan0", Description: "a card", Backend: "Vulkan", Kind: runtime.DeviceGPU, Total: 100}}}

// TestHiddenDevice: a device that is there without the sandbox, and not with it, is told.
func TestHiddenDevice(t *testing.T) {
	for _, c := range []struct {
		layers int
		used   uint32
		log    bool
		fail   bool
	}{{-1, 2, false, false}, {-1, 1, true, false}, {5, 1, false, true}, {-2, 1, false, true}, {0, 1, false, false}} {
		var log bytes.Buffer
		cfg := &config.Config{GPULayers: c.layers, Backends: oneDevice}
		err := HiddenDevice(cfg, &runtime.Capabilities{Devices: c.used}, true, slog.New(slog.NewTextHandler(&log, nil)))
		if (err != nil) != c.fail || strings.Contains(log.String(), "hides the device") != c.log {
			t.Errorf("%+v: %v, %q", c, err, log.String())
		}
	}
}

// TestDevicePolicy: the sandbox opens the files of drivers where there is a device, and those alone.
func TestDevicePolicy(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	icd := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(icd, []byte(`{"ICD":{"library_path":"libx.so"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VK_DRIVER_FILES", icd)
	with := Policy(&config.Config{Model: "/m", GPULayers: -1, Backends: oneDevice})
	shaders := func(dir string) bool { return strings.HasSuffix(dir, "/uma-serve/shaders") }
	if !slices.Contains(with.Read, icd) || !slices.ContainsFunc(with.Write, shaders) {
		t.Errorf("%+v", with)
	}
	for _, c := range []config.Config{{GPULayers: 0, Backends: oneDevice}, {GPULayers: -1}} {
		if p := Policy(&c); slices.Contains(p.Read, icd) || slices.ContainsFunc(p.Write, shaders) ||
			len(p.Devices) > 0 {
			t.Errorf("%+v", p)
		}
	}
}
