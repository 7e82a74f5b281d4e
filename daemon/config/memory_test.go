package config

import (
	"math/rand/v2"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// The check at start counts what cannot be paged out: the KV pool, the repacked copy of weights, and with --no-mmap the
// weights. Its sentence names each, and an option that helps.
func TestMemoryCheckCountsTheRepackedCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	cfg := ggufgen.TinyWide()
	cfg.Type = ggufgen.Q4_K
	if err := ggufgen.Write(path, cfg); err != nil {
		t.Fatal(err)
	}
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	here := gguf.Processor{AVX2: true}
	copied := int64(info.Repacked(here).Copy)
	per, err := info.KVBytesPerToken("f16", "f16")
	if err != nil || copied < 1<<20 || per == 0 {
		t.Fatalf("%d bytes are repacked, %d a token, %v", copied, per, err)
	}
	const cells = 1024
	per += 2 * 512 // the masks of a pass over the device, in F16
	kv, weights := cells*per, int64(info.TensorBytes)
	for name, c := range map[string]struct {
		args      []string
		p         gguf.Processor
		available int64
		want      []string // nil: it fits
	}{
		"fits to the byte": {nil, here, kv + copied, nil},
		"a byte less": {nil, here, kv + copied - 1,
			[]string{"1024 tokens of context (--ctx-size) need 5.00 MiB for KV cells and attention masks", "the " +
				"weights repacked for this processor 2.", "use --ctx-size 576 or less", "or --no-repack"}},
		"the copy alone is more":   {nil, here, copied - 1, []string{"are available: use --no-repack"}},
		"without a copy":           {[]string{"--no-repack"}, here, kv, nil},
		"without one by its alias": {NormalizeArgs([]string{"-nr"}), here, kv, nil},
		"another processor":        {nil, gguf.Processor{}, kv, nil},
		"the pool alone":           {[]string{"--no-repack"}, here, kv - 1, []string{"use --ctx-size 576 or less"}},
		"nothing is mapped":        {[]string{"--no-mmap"}, here, kv + weights, nil},
		"nothing is mapped, less": {[]string{"--no-mmap"}, here, kv + weights - 1,
			[]string{"because of --no-mmap", "or no --no-mmap"}},
		"unknown": {nil, here, 0, nil},
	} {
		fs, dc, _ := NewFlagSet()
		if err := fs.Parse(append([]string{"-m", path, "-c", "1024", "--gpu-layers", "0"}, c.args...)); err != nil {
			t.Fatal(err)
		}
		err := dc.checkAvailable(path, c.available, c.p)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q in it", name, err, part)
			}
		}
	}
}

// TestDraftModelIsCounted: the draft model is part of the memory that its model's process is expected to take.
func TestDraftModelIsCounted(t *testing.T) {
	model, draft := ggufgen.Cached(t, ggufgen.Tiny()), ggufgen.Cached(t, ggufgen.TinyCopies())
	c, err := load(t, []string{"-m", model, "--draft-model", draft, "--ctx-size", "1024", "--gpu-layers", "0",
		"--cache-ram", "0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	alone := *c
	alone.DraftModel = ""
	with, err1 := c.Demand()
	without, err2 := alone.Demand()
	need := c.draftNeed(c.processor())
	total := func(d *Demand) int64 { return d.Private(d.Most) + d.Weights() }
	if err1 != nil || err2 != nil || need.Weights == 0 || need.KV == 0 ||
		total(&with)-total(&without) != int64(need.Total()) {
		t.Errorf("%+v with the draft model, %+v without; it needs %+v; %v, %v", with, without, need, err1, err2)
	}
	p := gguf.Processor{}
	// The least memory in which the model fits alone, in steps of 512 bytes: more than its draft model's.
	from := int64(c.draftNeed(p).Anonymous(true))
	least := from + 512*int64(1+sort.Search(1<<21, func(i int) bool {
		return alone.checkAvailable(model, from+512*int64(1+i), p) == nil
	}))
	if err := c.checkAvailable(model, least, p); err == nil || !strings.Contains(err.Error(), "the draft model") {
		t.Errorf("%d bytes: %v", least, err)
	}
	if err := c.checkAvailable(model, 2*least, p); err != nil {
		t.Errorf("%d bytes: %v", 2*least, err)
	}
	if c.Speculate = "off"; c.draftNeed(p).Total() != 0 {
		t.Error("a draft model that is not loaded is counted")
	}
}

// TestEagleIsCounted: so is an EAGLE-3 head, with the states that it reads.
func TestEagleIsCounted(t *testing.T) {
	model := ggufgen.TinyTarget(false)
	head := ggufgen.Cached(t, ggufgen.EagleOf(model, ggufgen.HeadRandom))
	c, err := load(t, []string{"-m", ggufgen.Cached(t, model), "--draft-model", head, "--spec-type", "draft-eagle3",
		"--ctx-size", "1024", "--gpu-layers", "0", "--cache-ram", "0", "--parallel", "3", "--batch-size", "64"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	alone := *c
	alone.DraftModel, alone.SpecType = "", "auto"
	with, err1 := c.Demand()
	without, err2 := alone.Demand()
	need := c.draftNeed(c.processor())
	states := int64((3*HeadStates + 64) * 3 * model.Embedding * 4)
	total := func(d *Demand) int64 { return d.Private(d.Most) + d.Weights() }
	if err1 != nil || err2 != nil || need.Weights == 0 || need.KV == 0 || c.DraftContextTokens() != 1024 ||
		total(&with)-total(&without) != int64(need.Total())+states {
		t.Errorf("%+v with the head, %+v without; it needs %+v and %d; %v, %v", with, without, need, states, err1, err2)
	}
}

// TestModelsOwnContext: without --ctx-size a model starts with what it was trained on, the built-in one with 2,048.
func TestModelsOwnContext(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	builtIn, err := models.Default()
	if err != nil {
		t.Fatal(err)
	}
	long := ggufgen.Tiny()
	long.Context = 8192
	for _, x := range []struct {
		path string
		args []string
		want int
	}{
		{builtIn, nil, 2048},
		{builtIn, []string{"-c", "4096"}, 4096},
		{builtIn, []string{"-c", "0"}, 0},
		{builtIn, []string{"--config", write(t, "ctx-size = 4096\n")}, 4096},
		{builtIn, []string{"-c", "auto"}, 2048},
		{ggufgen.Cached(t, long), nil, 8192},
		{ggufgen.Cached(t, ggufgen.TinyLearned()), nil, 256},
		{ggufgen.Cached(t, ggufgen.TinyLearned()), []string{"-c", "2048"}, 256},
		{ggufgen.Cached(t, ggufgen.TinyLearned()), []string{"-c", "128"}, 128},
		{"/nonexistent", nil, 4096},
	} {
		c, err := load(t, x.args, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ContextTokens(x.path); got != x.want {
			t.Errorf("%s %q: %d cells, want %d", filepath.Base(x.path), x.args, got, x.want)
		}
	}
}

// TestAutomaticContext: it is the model's own where that fits, else nearly the largest that passes the check at start;
// a model that fits with the least is never refused.
func TestAutomaticContext(t *testing.T) {
	long := ggufgen.TinyWide()
	long.Context = 1 << 20
	path := ggufgen.Cached(t, long)
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	p := gguf.Processor{}
	with := func(ctx string) *Config {
		c, err := load(t, []string{"-m", path, "-c", ctx, "--gpu-layers", "0"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	d, err := with("auto").demand(&info, p)
	if err != nil || d.Most != 1<<20 || d.Least != leastContext {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, available := range []int64{d.Private(1<<20) * 2, d.Private(600_000), d.Private(40_000), d.Private(5000),
		d.Private(4096), d.Private(leastContext), d.Private(leastContext) - d.Fixed} {
		c := with("auto")
		n, note := c.fitMemory(&info, c.Cells(&info), available, p)
		passes := func(tokens int) bool { // beside the process itself, which the check leaves out
			return with(strconv.Itoa(tokens)).checkAvailable(path, max(available-processBytes, 1), p) == nil
		}
		if !passes(n) && passes(leastContext) {
			t.Errorf("%d bytes: %d tokens are refused", available, n)
		}
		if n < 1<<20 && passes(n+n/9+contextStep) {
			t.Errorf("%d bytes: %d tokens, and more than a tenth more would fit", available, n)
		}
		if own := strings.HasSuffix(note, "the model's own"); own != (n == 1<<20) {
			t.Errorf("%d bytes: %d tokens, %q", available, n, note)
		}
	}
	c := with("auto")
	if c.MaxContext = 5000; c.Cells(&info) != 5000 {
		t.Errorf("%d tokens where a front leaves 5000", c.Cells(&info))
	}
	if n, note := c.fitMemory(&info, 5000, 1<<40, p); n != 5000 || !strings.Contains(note, "--memory allows") {
		t.Errorf("%d tokens, %q", n, note)
	}
}

// TestDemandFits: Fit's context fits, is between the bounds, and one step more does not fit.
func TestDemandFits(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	for range 5000 {
		d := Demand{Fixed: r.Int64N(1000), CellBytes: r.Int64N(5), PassBytes: r.Int64N(3), Least: 1 + r.IntN(2000)}
		d.Most = d.Least + r.IntN(3)*r.IntN(20000)
		room := r.Int64N(60000)
		n := d.Fit(room)
		if n == 0 {
			if d.Private(d.Least) <= room {
				t.Fatalf("seed %d: %+v, room %d: refused", seed, d, room)
			}
			continue
		}
		if n < d.Least || n > d.Most || d.Private(n) > room {
			t.Fatalf("seed %d: %+v, room %d: %d", seed, d, room, n)
		}
		if n < d.Most && d.Private(n+contextStep) <= room {
			t.Fatalf("seed %d: %+v, room %d: %d is less than need be", seed, d, room, n)
		}
	}
}

// TestAutomaticContextOnADevice: the memory of a device is not known, so the context is a small one.
func TestAutomaticContextOnADevice(t *testing.T) {
	long := ggufgen.Tiny()
	long.Context = 8192
	path := ggufgen.Cached(t, long)
	for layers, want := range map[string]int{"-1": gguf.DefaultContext, "0": 8192} {
		c, err := load(t, []string{"-m", path, "--gpu-layers", layers}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Backends.Devices = []runtime.Device{{Name: "Vulkan0"}}
		note := c.FitMemory(path)
		if c.CtxSize != want || (layers == "0") != strings.HasSuffix(note, "the model's own") {
			t.Errorf("--gpu-layers %s: %d tokens, %q", layers, c.CtxSize, note)
		}
	}
}

// TestContextFitsTheDevice: where the memory of a device is known, an automatic context is the largest one with which
// weights, cells and buffers fit into it: with 256 tokens more they would not. With few layers there, or without the
// cells, it is larger; integrated devices have the host's memory.
func TestContextFitsTheDevice(t *testing.T) {
	long := ggufgen.Tiny()
	long.Context = 65536
	path := ggufgen.Cached(t, long)
	fit := func(free uint64, kind runtime.DeviceKind, args ...string) (c *Config, d Demand, note string) {
		t.Helper()
		c, err := load(t, append([]string{"-m", path}, args...), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Backends.Devices = []runtime.Device{{Name: "CUDA0", Kind: kind, Free: free, Total: free}}
		if d, err = c.Demand(); err != nil {
			t.Fatal(err)
		}
		note = c.FitMemory(path)
		return c, d, note
	}
	c, d, note := fit(64<<30, runtime.DeviceGPU)
	if c.CtxSize != 65536 || !strings.HasSuffix(note, "the model's own") || c.Place.Layers() != len(d.Device.Layers) {
		t.Errorf("a large device: %d tokens, %+v, %q", c.CtxSize, c.Place, note)
	}
	takes := func(d *Demand, tokens int) int64 {
		p := *c.Place
		p.Tokens = tokens
		return d.DeviceBytes(&p)["CUDA0"]
	}
	free := uint64(float64(takes(&d, 20000))/autoUse) + 1
	room := int64(autoUse * float64(free))
	some, d, note := fit(free, runtime.DeviceGPU, "--gpu-layers", "all")
	n := some.CtxSize
	if n != 19968 || takes(&d, n) > room || takes(&d, n+contextStep) <= room ||
		!strings.Contains(note, "the device's memory") {
		t.Errorf("%d tokens of %d in %d bytes, %q", n, takes(&d, n), room, note)
	}
	if less, _, _ := fit(free, runtime.DeviceGPU, "--gpu-layers", "1"); less.CtxSize <= n {
		t.Errorf("with one layer on the device %d tokens, with all %d", less.CtxSize, n)
	}
	if off, _, _ := fit(free, runtime.DeviceGPU, "--no-kv-offload"); off.CtxSize <= n {
		t.Errorf("with the cells in the host's memory %d tokens, else %d", off.CtxSize, n)
	}
	if tiny, d, _ := fit(1<<20, runtime.DeviceGPU, "--gpu-layers", "all"); tiny.CtxSize != d.Least ||
		tiny.Place != nil {
		t.Errorf("a device that is too small: %d tokens, want the least, %d", tiny.CtxSize, d.Least)
	}
	if plain, _, _ := fit(free, runtime.DeviceGPU, "--gpu-layers", "all", "--cpu-moe"); plain.CtxSize != n {
		t.Errorf("%d tokens with --cpu-moe, which a model without experts does not heed, else %d", plain.CtxSize, n)
	}
	tiny, _, _ := fit(1<<20, runtime.DeviceGPU)
	if tiny.CtxSize != 65536 || tiny.Place.Layers() != 0 || tiny.OnDevice() {
		t.Errorf("a device on which nothing fits: %d tokens, %+v", tiny.CtxSize, tiny.Place)
	}
	if c, d, _ := fit(64<<30, runtime.DeviceIGPU); c.CtxSize != 65536 || len(d.Device.Layers) > 0 || c.Place != nil {
		t.Errorf("an integrated device: %d tokens, %+v", c.CtxSize, d.Device)
	}
	if c, d, _ := fit(uint64(d.Private(20000)), runtime.DeviceMetal); c.CtxSize >= 20000 || c.CtxSize < 10000 {
		t.Errorf("a device that may use a part of the host's memory: %d tokens of %+v", c.CtxSize, d)
	}
	given, _, note := fit(free, runtime.DeviceGPU, "--ctx-size", "10000")
	if given.CtxSize != 10000 || note != "" || given.Place.Layers() != len(d.Device.Layers) {
		t.Errorf("--ctx-size 10000: %d, %+v, %q", given.CtxSize, given.Place, note)
	}
	front := *some
	front.CtxSize, front.MaxContext, front.Place = AutoContext, 2048, &Place{Tokens: 2048}
	if front.FitMemory(path); front.CtxSize != 2048 || front.Place.Tokens != 2048 {
		t.Errorf("what a front has chosen: %d, %+v", front.CtxSize, front.Place)
	}
}

// TestStatesAreCounted: a recurrent model takes a state for each sequence, whatever its context is; those for cached
// prefixes follow --memory.
func TestStatesAreCounted(t *testing.T) {
	with := func(memory string) *Config {
		c, err := load(t, []string{"--memory", memory, "--parallel", "8"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	path := ggufgen.Cached(t, ggufgen.Tiny())
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	c := with("800MiB")
	without, err := c.demand(&info, gguf.Processor{})
	if err != nil {
		t.Fatal(err)
	}
	info.Recurrent, info.StateBytes = true, 1<<20
	d, err := c.demand(&info, gguf.Processor{})
	sequences, seals := c.sequences(&info)
	if err != nil || seals != 100<<20 || sequences > 32 || d.States != int64(sequences)<<20+seals ||
		d.Fixed-without.Fixed != d.States {
		t.Errorf("%d sequences, %d bytes of seals; %+v, without states %+v; %v", sequences, seals, d, without, err)
	}
	info.StateBytes = 1 << 60
	if _, err := c.demand(&info, gguf.Processor{}); err == nil || !strings.Contains(err.Error(), "no machine has") {
		t.Errorf("absurd states: %v", err)
	}
}
