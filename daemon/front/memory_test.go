package front

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/race"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime"
)

// TestFiftyModelsInRoomForFour asks 50 models in turn where memory has room for four.
func TestFiftyModelsInRoomForFour(t *testing.T) {
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("m%02d", i))
	}
	r := start(t, Options{}, names, nil, "--memory", "400b", "--sandbox=false")
	over := make(chan int64, 1)
	watch := func() {
		r.call(func() {
			n := int64(0)
			for _, m := range r.models {
				if m.proc != nil || m.state == starting {
					n += m.need()
				}
			}
			if n > r.limit || n != r.used() {
				select {
				case over <- n:
				default:
				}
			}
		})
	}
	c := r.dial()
	for _, n := range names {
		if got, err := wholeOf(c, n); err != nil || got != "I am "+n {
			t.Fatalf("%s: %q, %v", n, got, err)
		}
		watch()
	}
	select {
	case n := <-over:
		t.Errorf("%d bytes are in use of %d", n, r.limit)
	default:
	}
	waitfor.True(t, "loads and unloads are balanced", func() bool {
		loaded, loads, unloads := 0, 0, 0
		r.call(func() {
			for _, m := range r.models {
				if m.proc != nil {
					loaded++
				}
				loads, unloads = loads+m.loads, unloads+m.unloads
				if m.crashed > 0 {
					t.Errorf("%s has crashed", m.name)
				}
			}
		})
		return loaded <= 4 && loads == unloads+loaded && loads >= 50
	})
}

// TestAnsweringAndPinnedModelsStay: a model that answers or is pinned does not leave; the request waits, and why says
// so.
func TestAnsweringAndPinnedModelsStay(t *testing.T) {
	r := start(t, Options{}, []string{"pinned", "slow", "three"}, func(c *config.Config) { c.Models[0].Pinned = true },
		"--memory", "200b")
	r.awaitReady("pinned")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	long := request("slow", func(q *wire.Request) {
		q.Messages, q.Prompt, q.Stream, q.Sampling.IgnoreEOS, q.MaxTokens = nil, "tell on", true, true, 1000
	})
	st, err := r.dial().Stream(ctx, long)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		got, err := wholeOf(r.dial(), "three")
		if err == nil && got != "I am three" {
			err = fmt.Errorf("the answer is %q", got)
		}
		answered <- err
	}()
	waitfor.True(t, "why says that it waits", func() bool {
		_, text := r.http().do("GET", "/why?last=10", "")
		return strings.Contains(text, `"reason":"model_memory"`) && strings.Contains(text, `"model":"three"`)
	})
	tokens := 0
	for {
		ev, err := st.Next()
		if err != nil {
			t.Fatalf("the answer was cut: %v", err)
		}
		if ev.Kind == wire.EventToken {
			tokens++
		}
		if ev.Kind == wire.EventEOS {
			break
		}
	}
	if err := waitfor.Recv(t, "the third model answers", answered); err != nil {
		t.Error(err)
	}
	if tokens < 900 {
		t.Errorf("the answer has %d tokens", tokens)
	}
	r.call(func() {
		if r.find("pinned").unloads != 0 || r.find("slow").unloads != 1 {
			t.Error("the wrong model has left")
		}
	})
}

func TestModelLargerThanMemory(t *testing.T) {
	r := start(t, Options{Demand: func(c *config.Config) (config.Demand, error) {
		if strings.HasSuffix(c.Model, "big") {
			return takes(1000), nil
		}
		return takes(100), nil
	}}, []string{"one", "big"}, nil, "--memory", "500b")
	_, err := wholeOf(r.dial(), "big")
	if code(err) != wire.ModelTooLarge || !strings.Contains(err.Error(), "--memory") {
		t.Errorf("%v", err)
	}
}

func TestIdleModelIsUnloaded(t *testing.T) {
	r := start(t, Options{Tick: 10 * time.Millisecond}, []string{"one", "two"}, real(t), "--idle-unload", "200ms")
	c, h := r.dial(), r.http()
	if got, err := wholeOf(c, "two"); err != nil || got != "I am two" {
		t.Fatalf("%q, %v", got, err)
	}
	if status, _ := h.post("/v1/chat/completions", chat("two", "")); status != 200 {
		t.Fatal(status)
	}
	waitfor.True(t, "it is unloaded", func() bool {
		n := 0
		r.call(func() { n = r.find("two").unloads })
		return n > 0
	})
	// So it is while a client asks for its state all the time.
	if status, _ := h.post("/v1/chat/completions", chat("one", "")); status != 200 {
		t.Fatal(status)
	}
	waitfor.True(t, "a polled model is unloaded", func() (gone bool) {
		if status, text := h.do("GET", "/slots?model=one", ""); status != 200 {
			t.Fatal(status, text)
		}
		r.call(func() { gone = r.find("one").state == unloaded })
		return gone
	})
	// The connections have stayed, and their next requests load it again.
	if got, err := wholeOf(c, "two"); err != nil || got != "I am two" {
		t.Errorf("%q, %v", got, err)
	}
	if status, text := h.post("/v1/chat/completions", chat("two", "")); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}

// TestModelsShareADevice changes 200 times between two models that do not fit together on a device of a stated size:
// their processes never have more of it than there is, and each has the largest context that fits.
func TestModelsShareADevice(t *testing.T) {
	const free, cell, fixed = 100_000, 2, 40_000
	devices := func(context.Context) (runtime.Backends, error) {
		return runtime.Backends{Devices: []runtime.Device{{Name: "CUDA0", Kind: runtime.DeviceGPU, Free: free,
			Total: 2 * free}}}, nil
	}
	r := start(t, Options{Devices: devices, Demand: func(*config.Config) (config.Demand, error) {
		return config.Demand{Fixed: 1, Most: 60_000, Least: 1024,
			Device: config.DeviceDemand{Fixed: fixed, PerToken: cell}}, nil
	}}, []string{"one", "two"}, nil, "--sandbox=false", "--ctx-size", "60000")
	const room = free * 95 / 100
	clients := [2]*client.Client{r.dial(), r.dial()}
	changes := 200
	if testing.Short() || race.Enabled { // a change takes a second
		changes = 40
	}
	for i := range changes {
		name := [...]string{"one", "two"}[i%2]
		if got, err := wholeOf(clients[i%2], name); err != nil || got != "I am "+name {
			t.Fatalf("change %d: %q, %v", i, got, err)
		}
		r.call(func() {
			n := r.onDevices((*served).takesMemory)
			if m := r.find(name); r.devices.limit != room || n > room || m.tokens != (room-fixed)/cell/256*256 {
				t.Errorf("change %d: %d bytes of %d are in use, with a context of %d", i, n, r.devices.limit, m.tokens)
			}
		})
	}
	r.call(func() {
		for _, m := range r.models {
			if m.loads < changes/2 || m.crashed > 0 {
				t.Errorf("%s was loaded %d times, and has crashed %d times", m.name, m.loads, m.crashed)
			}
		}
	})
}

// TestModelLargerThanDevice: what does not fit on the device is refused, with what would help. The engine's own figures
// replace the estimate once a model is loaded.
func TestModelLargerThanDevice(t *testing.T) {
	devices := func(context.Context) (runtime.Backends, error) {
		return runtime.Backends{Devices: []runtime.Device{{Name: "CUDA0", Kind: runtime.DeviceGPU, Free: 1000}}}, nil
	}
	r := start(t, Options{Devices: devices, Demand: func(c *config.Config) (config.Demand, error) {
		d := takes(1)
		if d.Device.Fixed = 300; strings.HasSuffix(c.Model, "big") {
			d.Device.Fixed = 951
		}
		return d, nil
	}}, []string{"one", "big"}, nil, "--sandbox=false")
	if got, err := wholeOf(r.dial(), "one"); err != nil || got != "I am one" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err := wholeOf(r.dial(), "big")
	if code(err) != wire.ModelTooLarge || !strings.Contains(err.Error(), "--gpu-layers") {
		t.Errorf("%v", err)
	}
	r.call(func() {
		m := r.find("one")
		if n := m.onDevice(); n != 300 {
			t.Errorf("%d bytes by the estimate", n)
		}
		m.status.Devices = 200
		if n := m.onDevice(); n != 200+config.DriverBytes {
			t.Errorf("%d bytes by the engine's figures", n)
		}
		m.status.Devices = 1 << 40
		if n := m.onDevice(); n != 950+config.DriverBytes {
			t.Errorf("%d bytes by figures that no device has", n)
		}
	})
}

// TestContextFollowsTheMemory: a model with an automatic context takes what is free, as long as that is enough for an
// agent; only then another model is unloaded for it.
func TestContextFollowsTheMemory(t *testing.T) {
	r := start(t, Options{Demand: func(c *config.Config) (config.Demand, error) {
		return config.Demand{Fixed: 1000, CellBytes: 1, Most: 30000, Least: 1024}, nil
	}}, []string{"one", "two", "three"}, nil, "--memory", "50000b", "--ctx-size", "30000")
	for _, x := range []struct {
		name    string
		tokens  map[string]int // of the models that are loaded then
		unloads int
	}{
		{"one", map[string]int{"one": 30000}, 0},
		{"two", map[string]int{"one": 30000, "two": 17920}, 0},
		{"three", map[string]int{"two": 17920, "three": 30000}, 1},
	} {
		if got, err := wholeOf(r.dial(), x.name); err != nil || got != "I am "+x.name {
			t.Fatalf("%s: %q, %v", x.name, got, err)
		}
		r.call(func() {
			unloads, got := 0, map[string]int{}
			for _, m := range r.models {
				unloads += m.unloads
				if m.proc != nil {
					got[m.name] = m.located.WithMemory(0, m.tokens).MaxContext
				}
			}
			if unloads != x.unloads || !maps.Equal(got, x.tokens) {
				t.Errorf("with %s loaded the contexts are %v, after %d unloads; want %v", x.name, got, unloads,
					x.tokens)
			}
		})
	}
}

// TestContextShrinksBeforeARefusal: what fits with the least context is loaded, and one token more of it is not.
func TestContextShrinksBeforeARefusal(t *testing.T) {
	demand := func(fixed int64) func(*config.Config) (config.Demand, error) {
		return func(*config.Config) (config.Demand, error) {
			return config.Demand{Fixed: fixed, CellBytes: 1, Most: 30000, Least: 1024}, nil
		}
	}
	r := start(t, Options{Demand: demand(1000)}, []string{"one"}, nil, "--memory", "2024b")
	if got, err := wholeOf(r.dial(), "one"); err != nil || got != "I am one" {
		t.Errorf("%q, %v", got, err)
	}
	r = start(t, Options{Demand: demand(1001)}, []string{"one"}, nil, "--memory", "2024b")
	_, err := wholeOf(r.dial(), "one")
	if code(err) != wire.ModelTooLarge || !strings.Contains(err.Error(), "use a smaller model") {
		t.Errorf("%v", err)
	}
}

// TestSharedWeightsCountOnce: processes that map the same file share its pages.
func TestSharedWeightsCountOnce(t *testing.T) {
	r := start(t, Options{Demand: func(c *config.Config) (config.Demand, error) {
		d := takes(10)
		d.Mapped = map[string]int64{"/the/file": 80}
		if strings.HasSuffix(c.Model, "other") {
			d.Mapped = map[string]int64{"/another": 80}
		}
		return d, nil
	}}, []string{"one", "same", "other"}, nil, "--memory", "110b")
	for _, x := range []struct {
		name    string
		used    int64
		unloads int
	}{{"one", 90, 0}, {"same", 100, 0}, {"other", 90, 2}} {
		if got, err := wholeOf(r.dial(), x.name); err != nil || got != "I am "+x.name {
			t.Fatalf("%s: %q, %v", x.name, got, err)
		}
		r.call(func() {
			unloads := 0
			for _, m := range r.models {
				unloads += m.unloads
			}
			if r.used() != x.used || unloads != x.unloads {
				t.Errorf("with %s loaded %d bytes are in use, after %d unloads; want %d, %d", x.name, r.used(), unloads,
					x.used, x.unloads)
			}
		})
	}
}

// TestHostTiersShareABudget: the engine processes have the caps that the front divides, which are together never more
// than what the models leave; the model that is asked has most, and a model that is loaded takes room from the others.
func TestHostTiersShareABudget(t *testing.T) {
	r := start(t, Options{Tick: 10 * time.Millisecond, Demand: func(c *config.Config) (config.Demand, error) {
		d := takes(100 << 20)
		d.HostTier = true
		return d, nil
	}}, []string{"one", "two", "three"}, nil, "--memory", "400MiB", "--cache-ram", "240MiB")
	caps := func() (told map[string]int64, sum int64) {
		told = map[string]int64{}
		r.call(func() {
			for _, m := range r.models {
				if m.takesMemory() {
					told[m.name] = m.host.cap
					sum += m.host.cap
				}
			}
		})
		return told, sum
	}
	has := func(name string) int64 { // the cap in the process
		_, text := r.http().do("GET", "/kv", "")
		var rep wire.KVReport
		if err := json.Unmarshal([]byte(text), &rep); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if of := rep.Models[name]; of != nil {
			for _, tier := range of.Tiers {
				if tier.Tier == wire.TierHost {
					return tier.CapBytes
				}
			}
		}
		return -1
	}
	for i, name := range []string{"one", "two", "three"} {
		if got, err := wholeOf(r.dial(), name); err != nil || got != "I am "+name {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		budget := min(240, 400-100*int64(i+1)) << 20
		waitfor.True(t, fmt.Sprintf("%d processes have the caps that they were told", i+1), func() bool {
			told, sum := caps()
			if sum > budget || sum < budget/16*15 {
				return false
			}
			for name, n := range told {
				if has(name) != n {
					return false
				}
			}
			return true
		})
	}
	for range 30 {
		if _, err := wholeOf(r.dial(), "two"); err != nil {
			t.Fatal(err)
		}
	}
	waitfor.True(t, "the busy one has most", func() bool {
		told, sum := caps()
		return told["two"] > sum/2 && has("two") == told["two"]
	})
}
