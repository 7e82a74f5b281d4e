package config

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// onDevices returns a demand of n layers of 100 bytes, with a byte a token each, of which least to n are on devices.
func onDevices(n, least int) Demand {
	d := Demand{Fixed: int64(100 * n), CellBytes: int64(n), Most: 8192, Least: 1024,
		Device: DeviceDemand{Least: least, Most: n, Each: 50}}
	for range n {
		d.Device.Layers = append(d.Device.Layers, LayerDemand{Fixed: 100, PerToken: 1, HostFixed: 100, HostCells: 1})
	}
	return d
}

func plenty(*Demand) int64 { return math.MaxInt64 }

// TestPlace: where a model of ten layers is put.
func TestPlace(t *testing.T) {
	const layer = 100 + 8192 // with the largest context
	on := func(list ...any) (out []runtime.DeviceLayers) {
		for i := 0; i < len(list); i += 2 {
			out = append(out, runtime.DeviceLayers{Device: list[i].(string), Layers: list[i+1].(int)})
		}
		return out
	}
	withDraft := onDevices(10, 0)
	withDraft.Device.Draft = 1000
	withProjector := onDevices(10, 0)
	withProjector.Device.Projector = 2 * layer
	for _, c := range []struct {
		name  string
		d     Demand
		host  int64
		rooms []Room
		want  Place
	}{
		{"one device", onDevices(10, 10), 0, []Room{{"a", 50 + 10*layer}}, Place{8192, on("a", 10), ""}},
		{"a shorter context", onDevices(10, 10), 0, []Room{{"a", 50 + 10*(100+5000)}}, Place{4864, on("a", 10), ""}},
		{"the least context", onDevices(10, 10), 0, []Room{{"a", 50 + 10*(100+1024)}}, Place{1024, on("a", 10), ""}},
		{"too little", onDevices(10, 10), math.MaxInt64, []Room{{"a", 49 + 10*(100+1024)}}, Place{}},
		{"the one with more room", onDevices(10, 10), 0, []Room{{"a", 60 + 10*layer}, {"b", 70 + 10*layer}},
			Place{8192, on("b", 10), ""}},
		{"two", onDevices(10, 10), 0, []Room{{"a", 50 + 6*layer}, {"b", 50 + 7*layer}},
			Place{8192, on("a", 6, "b", 4), ""}},
		{"a full one is passed over", onDevices(10, 10), 0, []Room{{"a", 40}, {"b", 50 + 5*layer}, {"c", 50 + 5*layer}},
			Place{8192, on("b", 5, "c", 5), ""}},
		{"as many as fit", onDevices(10, 0), 1 << 30, []Room{{"a", 50 + 3*(100+4096)}}, Place{4096, on("a", 3), ""}},
		{"the context is for the processor's too", onDevices(10, 0), 700 + 7*4096, []Room{{"a", 50 + 3*layer}},
			Place{4864, on("a", 5), ""}},
		{"none", onDevices(10, 0), 1 << 30, []Room{{"a", 50}}, Place{8192, nil, ""}},
		{"little everywhere", onDevices(10, 0), 0, []Room{{"a", 50 + 10*(100+2048)}}, Place{2048, on("a", 10), ""}},
		{"nothing anywhere", onDevices(10, 0), 0, []Room{{"a", 50}}, Place{}},
		{"no devices", onDevices(10, 0), 1 << 30, nil, Place{8192, nil, ""}},
		{"with a draft model", withDraft, 0, []Room{{"a", 1050 + 10*layer}, {"b", 9}}, Place{8192, on("a", 10), "a"}},
		{"with a draft model, on two", withDraft, 0, []Room{{"a", 50 + 9*layer}, {"b", 1050 + 8*layer}},
			Place{8192, on("a", 8, "b", 2), "a"}},
		{"with a projector", withProjector, 0, []Room{{"a", 50 + 6*layer}, {"b", 50 + 6*layer}},
			Place{8192, on("a", 4, "b", 6), ""}},
	} {
		got := c.d.Place(func(*Demand) int64 { return c.host }, c.rooms)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestPlaceFits: no device gets more than its room, the host no more than its own, and with a step more of context the
// same layers would not fit, on one device or filled in order.
func TestPlaceFits(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 4))
	placed := 0
	for range 3000 {
		n := 1 + r.IntN(8)
		d := onDevices(n, 0)
		for i := range d.Device.Layers {
			l := &d.Device.Layers[i]
			l.Fixed, l.PerToken = r.Int64N(5000), r.Int64N(4)
		}
		d.Device.Each, d.Device.EachToken = r.Int64N(300), r.Int64N(2)
		if r.IntN(3) == 0 {
			d.Device.Draft = r.Int64N(3000)
		}
		if r.IntN(3) == 0 {
			d.Device.Projector = r.Int64N(3000)
		}
		d.Device.Least = r.IntN(2) * n
		rooms := make([]Room, 1+r.IntN(3))
		for i := range rooms {
			rooms[i] = Room{string(rune('a' + i)), r.Int64N(40_000)}
		}
		host := r.Int64N(100_000)
		p := d.Place(func(*Demand) int64 { return host }, rooms)
		if p.Tokens == 0 {
			continue
		}
		on := d.Placed(p.Layers())
		if p.Tokens < d.Least || p.Tokens > d.Most || p.Layers() < d.Device.Least || on.Private(p.Tokens) > host {
			t.Fatalf("seed %d: %+v of %+v, host %d of %d", seed, p, d, on.Private(p.Tokens), host)
		}
		for _, room := range rooms {
			if n := d.DeviceBytes(&p)[room.Device]; n > room.Bytes {
				t.Fatalf("seed %d: %+v of %+v takes %d of %+v", seed, p, d, n, room)
			}
		}
		if p.Layers() == 0 {
			continue
		}
		placed++
		more := p
		more.Tokens = (p.Tokens/contextStep + 1) * contextStep
		if more.Tokens > d.Most || on.Private(more.Tokens) > host {
			continue
		}
		fits := true
		for _, room := range rooms {
			fits = fits && d.DeviceBytes(&more)[room.Device] <= room.Bytes
		}
		if fits {
			t.Fatalf("seed %d: %+v of %+v in %+v: a longer context fits", seed, p, d, rooms)
		}
	}
	if placed < 300 {
		t.Errorf("only %d of 3000 have layers on devices", placed)
	}
}

// TestDemandOnDevices: what a real header takes of devices is what the host no longer needs, and the projector and the
// draft model are among it.
func TestDemandOnDevices(t *testing.T) {
	path := ggufgen.Cached(t, ggufgen.TinyWide())
	projector := filepath.Join(t.TempDir(), "mmproj.gguf")
	if err := os.WriteFile(projector, make([]byte, 12345), 0o600); err != nil {
		t.Fatal(err)
	}
	demand := func(args ...string) Demand {
		c, err := load(t, append([]string{"-m", path, "-c", "4096", "--no-mmap", "--no-repack"}, args...), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Backends.Devices = []runtime.Device{{Name: "CUDA0", Kind: runtime.DeviceGPU, Free: 64 << 30},
			{Name: "CUDA1", Kind: runtime.DeviceGPU, Free: 64 << 30}}
		d, err := c.Demand()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	all := int(info.Layers) + 1
	d := demand()
	if len(d.Device.Layers) != all || d.Device.Least != 0 || d.Device.Most != all {
		t.Errorf("%+v", d.Device)
	}
	on := d.Placed(all)
	if on.CellBytes != 0 || on.Fixed >= d.Fixed || on.Fixed < processBytes {
		t.Errorf("%+v on devices, %+v on the processor", on, d)
	}
	one := d.Placed(1)
	if one.CellBytes != d.CellBytes || one.Fixed <= on.Fixed {
		t.Errorf("%+v with the output on a device", one)
	}
	for args, want := range map[string][2]int{"all": {all, all}, "2": {2, 2}, "99": {all, all}, "-2": {all, all},
		"AUTO": {0, all}} {
		if d := demand("--gpu-layers", args).Device; [2]int{d.Least, d.Most} != want {
			t.Errorf("--gpu-layers %s: %d to %d, want %v", args, d.Least, d.Most, want)
		}
	}
	if d := demand("--gpu-layers", "0"); len(d.Device.Layers) > 0 {
		t.Errorf("%+v", d.Device)
	}
	if d := demand("--no-kv-offload"); d.Placed(all).CellBytes != d.CellBytes || d.Device.Layers[0].PerToken != 0 {
		t.Errorf("cells stay with the host: %+v", d)
	}
	with := demand("--mmproj", projector, "--draft-model", ggufgen.Cached(t, ggufgen.TinyCopies()))
	if with.Device.Projector != 12345+projectorBuffers || with.Device.Draft <= 0 ||
		with.LeastOnDevices() != 0 || with.Fixed-d.Fixed < with.Device.Projector {
		t.Errorf("%+v", with.Device)
	}
	p := with.Place(plenty, []Room{{"CUDA0", 1 << 40}, {"CUDA1", 1 << 39}})
	bytes := with.DeviceBytes(&p)
	without := d.DeviceBytes(&Place{Tokens: p.Tokens, On: p.On})
	if p.Draft != "CUDA0" || bytes["CUDA0"]-without["CUDA0"] != with.Device.Projector+with.Device.Draft ||
		bytes["CUDA1"] != 0 {
		t.Errorf("%+v takes %v, without projector and draft model %v", p, bytes, without)
	}
}

// mixture writes the header and weights of a model whose feed-forward parts are experts.
func mixture(t *testing.T) string {
	from, err := os.Open(ggufgen.Cached(t, ggufgen.TinyWide()))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil {
		t.Fatal(err)
	}
	kvs, tensors, err := gguffile.Read(from, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range tensors {
		if strings.Contains(x.Name, ".ffn_") && !strings.Contains(x.Name, "norm") {
			tensors[i].Name = strings.TrimSuffix(x.Name, ".weight") + "_exps.weight"
		}
	}
	to, err := os.Create(filepath.Join(t.TempDir(), "mixture.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := gguffile.Write(to, kvs, tensors); err != nil {
		t.Fatal(err)
	}
	return to.Name()
}

// TestExpertsStay: experts that --n-cpu-moe keeps are no longer a demand for a device but one for the host's memory,
// whatever number of layers is on devices, and the layers of a model fit where they would not.
func TestExpertsStay(t *testing.T) {
	path := mixture(t)
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	experts := info.Placed().Experts
	n := len(experts)
	if n < 3 || info.ExpertBytes == 0 {
		t.Fatalf("%d layers, %d bytes of experts", n, info.ExpertBytes)
	}
	for _, weights := range []string{"--no-mmap", "--no-mmap=false"} { // which are Fixed, or Mapped
		demand := func(moe int) Demand {
			c, err := load(t, []string{"-m", path, "-c", "4096", "--no-repack", weights, "--n-cpu-moe",
				strconv.Itoa(moe)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Backends.Devices = []runtime.Device{{Name: "CUDA0", Kind: runtime.DeviceGPU, Free: 64 << 30}}
			d, err := c.Demand()
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		host := func(d *Demand, on int) int64 {
			placed := d.Placed(on)
			return placed.Private(4096) + placed.Weights()
		}
		plain := demand(0)
		for moe, stay := range map[int]int{0: 0, 1: 1, 2: 2, n: n, n + 1: n, 9999: n, -1: n} {
			d := demand(moe)
			if host(&d, 0) != host(&plain, 0) {
				t.Errorf("%s --n-cpu-moe %d: %d bytes on the processor, else %d", weights, moe, host(&d, 0),
					host(&plain, 0))
			}
			for on := 1; on <= n+1; on++ { // the output is the last one
				want := int64(0)
				for i := n + 1 - on; i < stay; i++ {
					want += int64(experts[i])
				}
				at := &Place{Tokens: 4096, On: []runtime.DeviceLayers{{Device: "CUDA0", Layers: on}}}
				less := plain.DeviceBytes(at)["CUDA0"] - d.DeviceBytes(at)["CUDA0"]
				more := host(&d, on) - host(&plain, on)
				if less != want || max(more-want, want-more) > int64(n) { // each layer is rounded
					t.Errorf("%s --n-cpu-moe %d, %d layers on a device: %d bytes less there and %d more in the host's "+
						"memory, want %d", weights, moe, on, less, more, want)
				}
			}
		}
		all := demand(-1)
		room := []Room{{"CUDA0", all.DeviceBytes(&Place{Tokens: 4096,
			On: []runtime.DeviceLayers{{Device: "CUDA0", Layers: n + 1}}})["CUDA0"]}}
		with, without := all.Place(plenty, room), plain.Place(plenty, room)
		if with.Layers() != n+1 || without.Layers() > n {
			t.Errorf("%s: %d layers fit without their experts, want %d; with them %d", weights, with.Layers(), n+1,
				without.Layers())
		}
	}
}

// TestNoHostTier: the memory of an integrated device is the host's, so that a host tier would be a second copy of the
// cells; a discrete device has one, and so has what is asked for.
func TestNoHostTier(t *testing.T) {
	for _, x := range []struct {
		kind runtime.DeviceKind
		args []string
		none bool
	}{
		{runtime.DeviceIGPU, nil, true},
		{runtime.DeviceMetal, nil, true},
		{runtime.DeviceGPU, nil, false},
		{runtime.DeviceIGPU, []string{"--gpu-layers", "0"}, false},
		{runtime.DeviceIGPU, []string{"--no-kv-offload"}, false},
		{runtime.DeviceIGPU, []string{"--cache-ram", "1GiB"}, false},
		{runtime.DeviceIGPU, []string{"--cache-dir", "/nonexistent"}, false},
		{runtime.DeviceIGPU, []string{"--think-evict", "offload"}, false},
	} {
		c, err := load(t, append([]string{"-m", ggufgen.Cached(t, ggufgen.Tiny())}, x.args...), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Backends.Devices = []runtime.Device{{Name: "X0", Kind: x.kind, Free: 8 << 30}}
		d, err := c.Demand()
		if err != nil || c.NoHostTier() != x.none || d.HostTier == x.none {
			t.Errorf("%s %q: no host tier %v, %v; %v", x.kind, x.args, c.NoHostTier(), d.HostTier, err)
		}
	}
}

// TestLayersFlag: the values of --gpu-layers, llama-server's among them.
func TestLayersFlag(t *testing.T) {
	for text, want := range map[string]int{"auto": AutoLayers, "-1": AutoLayers, "All": AllLayers, "-2": AllLayers,
		" 7 ": 7, "0": 0} {
		var n int
		if err := (layersFlag{&n}).Set(text); err != nil || n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for text, want := range map[string]string{"some": "a whole number, auto or all", "-3": "0…65536",
		"65537": "0…65536", "99999999999999999999": "out of range"} {
		n := 5
		if err := (layersFlag{&n}).Set(text); err == nil || !strings.Contains(err.Error(), want) || n != 5 {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}
