package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
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
		s := &Server{cfg: cfg,
			log: slog.New(slog.NewTextHandler(&log, nil)), parts: parts{engine: &engine{box: &reports.InfoSandbox{}}}}
		err := s.hiddenDevice(cfg, &runtime.Capabilities{Devices: c.used})
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
	with := SandboxPolicy(&config.Config{Model: "/m", GPULayers: -1, Backends: oneDevice})
	shaders := func(dir string) bool { return strings.HasSuffix(dir, "/uma-serve/shaders") }
	if !slices.Contains(with.Read, icd) || !slices.ContainsFunc(with.Write, shaders) {
		t.Errorf("%+v", with)
	}
	for _, c := range []config.Config{{GPULayers: 0, Backends: oneDevice}, {GPULayers: -1}} {
		if p := SandboxPolicy(&c); slices.Contains(p.Read, icd) || slices.ContainsFunc(p.Write, shaders) ||
			len(p.Devices) > 0 {
			t.Errorf("%+v", p)
		}
	}
}

// TestDeviceGraphs: graphs of a device are counted, one for each pass over a part of a batch.
func TestDeviceGraphs(t *testing.T) {
	for devices, want := range map[uint32]bool{1: false, 3: true} {
		r := serve(t, fake.Config{Devices: devices})
		c := r.dial()
		if a := r.ask(c, func(q *wire.Request) { q.MaxTokens = 20 }); a.err != nil {
			t.Fatal(a.err)
		}
		if got := r.counter("device_graphs_total"); (got > 0) != want {
			t.Errorf("%b: %v graphs", devices, got)
		}
	}
}

// TestDeviceProbes: where the engine probes rows on a device, the forks of a thought are such rows, and what was copied
// of the others is counted.
func TestDeviceProbes(t *testing.T) {
	for devices, want := range map[uint32]bool{1: false, 3: true} {
		r := serve(t, fake.Config{Devices: devices, Scripts: []fake.Script{{Emit: "<think>" + thoughts(60) +
			"</think>It is 42."}}}, "--early-exit", "eat", "--meridian", "eat_probe_interval_tokens=8", "--meridian",
			"eat_ema_variance_threshold=0", "-c", "4000")
		a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 3000 })
		if a.err != nil || a.eos.Thought.Probes == 0 {
			t.Fatalf("%+v", a)
		}
		r.settled()
		probes, logits := r.counter("device_probes_total"), r.counter("device_logits_bytes_total")
		if !want && (probes != 0 || logits != 0) {
			t.Errorf("without a device %v rows were probed there, and %v bytes copied", probes, logits)
		}
		// A drawn token has a row; of some rows nothing is drawn.
		least, row := a.eos.Usage.CompletionTokens, 4*r.engine.Vocab().Size()
		if want && (int(probes) != a.eos.Thought.Probes || int(logits) < least*row || int(logits)%row != 0) {
			t.Errorf("%v rows of %d forks were probed on the device, and %v bytes of logits copied for %d tokens; a "+
				"row has %d bytes", probes, a.eos.Thought.Probes, logits, least, row)
		}
	}
}
