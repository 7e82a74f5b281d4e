package front

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/testutil/race"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
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
	t.Parallel() // it waits for most of its time
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
	r := start(t, Options{Devices: cards(free), Demand: func(*config.Config) (config.Demand, error) {
		return onCards(fixed, cell, 0), nil
	}}, []string{"one", "two"}, nil, "--sandbox=false", "--ctx-size", "60000")
	const room = free * 95 / 100
	clients := [2]*wireclient.Client{r.dial(), r.dial()}
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
			n := r.onCards()[0]
			if m := r.find(name); n > room || m.place.Tokens != (room-fixed)/cell/256*256 || m.place.Layers() != 1 {
				t.Errorf("change %d: %d bytes of %d are in use, at %+v", i, n, room, m.place)
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

// cards are discrete devices with so many free bytes.
func cards(free ...uint64) func(context.Context) (runtime.Backends, error) {
	var b runtime.Backends
	for i, n := range free {
		b.Devices = append(b.Devices, runtime.Device{Name: fmt.Sprintf("CUDA%d", i), Kind: runtime.DeviceGPU, Free: n,
			Total: 2 * n})
	}
	return func(context.Context) (runtime.Backends, error) { return b, nil }
}

// onCards is the demand of a model with a layer of so many bytes, beside those of its cells, and an automatic context;
// of it least layers must be on devices.
func onCards(fixed, cell int64, least int) config.Demand {
	return config.Demand{Fixed: 1, Most: 60_000, Least: 1024, Device: config.DeviceDemand{Least: least, Most: 1,
		Layers: []config.LayerDemand{{Fixed: fixed, PerToken: cell}}}}
}

// onCards returns the bytes of each device that models have.
func (r *running) onCards() []int64 {
	out := make([]int64, len(r.devices.rooms))
	for _, m := range r.models {
		if m.demand == nil || !m.takesMemory() {
			continue
		}
		for i, room := range r.devices.rooms {
			out[i] += m.onDevices()[room.Device]
		}
	}
	return out
}

// TestModelsOnSeveralDevices: each device has a ledger. Two models are on one each, a third one takes the
// place of the one that was asked longest ago, and a large one is divided over both. /metrics has every sum, and the
// list of models what fits and why.
func TestModelsOnSeveralDevices(t *testing.T) {
	r := start(t, Options{Devices: cards(100_000, 100_000), Demand: func(c *config.Config) (config.Demand, error) {
		d := onCards(60_000, 0, 1)
		if strings.HasSuffix(c.Model, "large") {
			d.Device.Layers = append(d.Device.Layers, d.Device.Layers[0])
			d.Device.Least, d.Device.Most = 2, 2
		}
		return d, nil
	}}, []string{"one", "two", "three", "large"}, nil, "--sandbox=false")
	on := func(name string) (places []runtime.DeviceLayers) {
		r.call(func() { places = r.find(name).place.On })
		return places
	}
	for i, x := range []struct {
		name, device string
		takes        []int64
	}{
		{"one", "CUDA0", []int64{60_000, 0}},
		{"two", "CUDA1", []int64{60_000, 60_000}},
		{"three", "CUDA0", []int64{60_000, 60_000}},
		{"one", "CUDA1", []int64{60_000, 60_000}},
	} {
		if got, err := wholeOf(r.dial(), x.name); err != nil || got != "I am "+x.name {
			t.Fatalf("%d: %q, %v", i, got, err)
		}
		if got := on(x.name); len(got) != 1 || got[0].Device != x.device {
			t.Errorf("%d: %s is on %v, want %s", i, x.name, got, x.device)
		}
		r.call(func() {
			if got := r.onCards(); !slices.Equal(got, x.takes) {
				t.Errorf("%d: the models take %v, want %v", i, got, x.takes)
			}
		})
	}
	_, text := r.http().do("GET", "/metrics", "")
	for _, want := range []string{
		`uma_front_device_total_bytes{device="CUDA0"} 200000`, `uma_front_device_limit_bytes{device="CUDA1"} 95000`,
		`uma_front_device_free_bytes{device="CUDA0"} 35000`,
		`uma_front_device_model_bytes{device="CUDA0",model="three"} 60000`,
		`uma_front_device_model_bytes{device="CUDA1",model="three"} 0`,
		`uma_front_device_model_bytes{device="CUDA1",model="one"} 60000`} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if got, err := wholeOf(r.dial(), "large"); err != nil || got != "I am large" {
		t.Fatalf("%q, %v", got, err)
	}
	want := []runtime.DeviceLayers{{Device: "CUDA0", Layers: 1}, {Device: "CUDA1", Layers: 1}}
	if got := on("large"); !slices.Equal(got, want) {
		t.Errorf("the large one is on %v", got)
	}
	r.call(func() {
		if got := r.onCards(); !slices.Equal(got, []int64{60_000, 60_000}) {
			t.Errorf("beside the large one the models take %v", got)
		}
		m := r.find("large").located
		if c := m.WithMemory(0, &r.find("large").place); c.Place.Layers() != 2 {
			t.Errorf("its process is told %+v", c.Place)
		}
	})
}

// TestAutomaticLayers: a model of which not all fits on the device is loaded with the layers that do, others leave for
// it first, and one of which nothing fits is computed by the processor.
func TestAutomaticLayers(t *testing.T) {
	r := start(t, Options{Devices: cards(100_000), Demand: func(c *config.Config) (config.Demand, error) {
		d := onCards(40_000, 0, 0)
		layers := 4
		switch {
		case strings.HasSuffix(c.Model, "small"):
			layers = 1
		case strings.HasSuffix(c.Model, "huge"):
			d.Device.Layers[0].Fixed = 96_000
		}
		for len(d.Device.Layers) < layers {
			d.Device.Layers = append(d.Device.Layers, d.Device.Layers[0])
		}
		d.Device.Most = layers
		return d, nil
	}}, []string{"small", "big", "huge"}, nil, "--sandbox=false")
	for _, x := range []struct {
		name    string
		layers  int
		unloads int
	}{{"small", 1, 0}, {"big", 2, 1}, {"huge", 0, 1}} {
		if got, err := wholeOf(r.dial(), x.name); err != nil || got != "I am "+x.name {
			t.Fatalf("%q, %v", got, err)
		}
		r.call(func() {
			unloads := 0
			for _, m := range r.models {
				unloads += m.unloads
			}
			m := r.find(x.name)
			c := m.located.WithMemory(0, &m.place)
			if m.place.Layers() != x.layers || unloads != x.unloads || c.OnDevice() != (x.layers > 0) {
				t.Errorf("%s has %d layers on the device after %d unloads, want %d after %d", x.name,
					m.place.Layers(), unloads, x.layers, x.unloads)
			}
		})
	}
}

// TestModelLargerThanDevice: what does not fit on the device is refused, with what would help. The engine's own figures
// replace the estimate once a model is loaded.
func TestModelLargerThanDevice(t *testing.T) {
	r := start(t, Options{Devices: cards(1000), Demand: func(c *config.Config) (config.Demand, error) {
		d := onCards(300, 0, 1)
		if strings.HasSuffix(c.Model, "big") {
			d.Device.Layers[0].Fixed = 951
		}
		return d, nil
	}}, []string{"one", "big"}, nil, "--sandbox=false")
	if got, err := wholeOf(r.dial(), "one"); err != nil || got != "I am one" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err := wholeOf(r.dial(), "big")
	if code(err) != wire.ModelTooLarge || !strings.Contains(err.Error(), "--gpu-layers") ||
		!strings.Contains(err.Error(), "951 B of the memory of devices") ||
		!strings.Contains(err.Error(), "950 B were free on CUDA0") {
		t.Errorf("%v", err)
	}
	r.call(func() {
		m := r.find("one")
		if n := m.onDevices()["CUDA0"]; n != 300 {
			t.Errorf("%d bytes by the estimate", n)
		}
		m.status.Devices = map[string]int64{"CUDA0": 200, "CUDA7": 5}
		if n := m.onDevices()["CUDA0"]; n != 200+config.DriverBytes {
			t.Errorf("%d bytes by the engine's figures", n)
		}
		m.status.Devices["CUDA0"] = 1 << 40
		if n := m.onDevices()["CUDA0"]; n != 950+config.DriverBytes {
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
					got[m.name] = m.located.WithMemory(0, &m.place).MaxContext
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
		var rep reports.KVReport
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
