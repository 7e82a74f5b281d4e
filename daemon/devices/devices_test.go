package devices

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/runtime"
)

var oneDevice = runtime.Backends{Names: []string{"Vulkan"}, Devices: []runtime.Device{
	{Name: "Vulkan0", Description: "a card", Backend: "Vulkan", Kind: runtime.DeviceGPU, Total: 100}}}

// TestCheck: what the start says about devices.
func TestCheck(t *testing.T) {
	refused := runtime.Backends{Refused: []runtime.Refused{{Path: "/x/libggml-vulkan.so",
		Why: "libvulkan.so.1: cannot open shared object file: No such file or directory"}}}
	for name, c := range map[string]struct {
		layers    int
		b         runtime.Backends
		log, fail string
	}{
		"no back end":         {layers: -1},
		"none, and one asked": {layers: 3, fail: "--gpu-layers is 3, and no device can be used: this uma-serve"},
		"a driver that crashed": {layers: 3, b: runtime.Backends{Said: "exit status 3"},
			fail: "--gpu-layers is 3, and no device can be used: exit status 3;"},
		"all of them, and none is there": {layers: config.AllLayers, b: refused,
			fail: "--gpu-layers is all, and no device can be used: vulkan: no driver"},
		"a device":              {layers: 3, b: oneDevice},
		"refused":               {layers: -1, b: refused, log: "no device is used"},
		"refused, and asked":    {layers: 3, b: refused, fail: "vulkan: no driver: the library libvulkan.so.1"},
		"refused, and not used": {layers: 0, b: refused},
	} {
		var log bytes.Buffer
		err := Check(&config.Config{GPULayers: c.layers, Backends: c.b},
			slog.New(slog.NewTextHandler(&log, nil)))
		if (err != nil) != (c.fail != "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%s: %v, want %q", name, err, c.fail)
		}
		if (log.Len() > 0) != (c.log != "") || !strings.Contains(log.String(), c.log) {
			t.Errorf("%s: the log has %q, want %q", name, log.String(), c.log)
		}
	}
}
