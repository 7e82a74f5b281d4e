package front

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
)

// TestFit: a listed model fits when its least fits beside the pinned ones, and the sentence says which case it is.
func TestFit(t *testing.T) {
	const gib = 1 << 30
	host := func(need int64) *config.Demand { return &config.Demand{Fixed: need, Most: 4096, Least: 4096} }
	card := func(layers, least int) *config.Demand {
		d := host(gib)
		d.Device.Least, d.Device.Most = least, layers
		for range layers {
			d.Device.Layers = append(d.Device.Layers, config.LayerDemand{Fixed: gib, HostFixed: gib / 16})
		}
		return d
	}
	loaded := func(pinned bool, demand *config.Demand) *served {
		m := &served{state: starting, pinned: pinned, demand: demand}
		m.place = config.Place{Tokens: 4096}
		m.placed = *demand
		return m
	}
	for _, c := range []struct {
		name   string
		state  state
		demand *config.Demand
		limit  int64
		card   int64 // 0: there is none
		others []*served
		fits   bool
		text   string
	}{
		{"room", unloaded, host(gib), 8 * gib, 0, nil, true, "it needs at least 1.00 GiB of 8.00 GiB"},
		{"exactly", unloaded, host(8 * gib), 8 * gib, 0, nil, true, "of 8.00 GiB"},
		{"others leave", unloaded, host(5 * gib), 8 * gib, 0, []*served{loaded(false, host(4*gib))}, true,
			"other models are unloaded for it"},
		{"too large", unloaded, host(9 * gib), 8 * gib, 0, nil, false, "raise --memory, or use a smaller model"},
		{"pinned take all", unloaded, host(gib), 8 * gib, 0, []*served{loaded(true, host(9*gib))}, false,
			"0 B are left"},
		{"loaded", ready, host(9 * gib), 8 * gib, 0, nil, true, "it is loaded"},
		{"on a device", unloaded, card(4, 0), 8 * gib, 6 * gib, nil, true,
			"it needs at least 768 MiB of 8.00 GiB, and 4.00 GiB of 6.00 GiB on devices"},
		{"a part on a device", unloaded, card(4, 0), 8 * gib, 3 * gib, nil, true, "with 3 of its 4 layers there"},
		{"nothing on a device", unloaded, card(4, 0), 8 * gib, gib / 2, nil, true, "the processor computes it"},
		{"too large for the device", unloaded, card(4, 4), 8 * gib, 3 * gib, nil, false,
			"it needs at least 4.00 GiB of the memory of devices (weights, KV cells, buffers), and 3.00 GiB are left"},
		{"the host's memory is what lacks", unloaded, card(4, 4), gib / 2, 8 * gib, nil, false, "raise --memory"},
	} {
		f := &Front{models: c.others, cfg: &config.Config{}}
		f.limit = c.limit
		for _, m := range c.others {
			m.f = f
		}
		if c.card > 0 {
			f.devices.rooms = []config.Room{{Device: "CUDA0", Bytes: c.card}}
		}
		got := f.fitOf(c.state == ready, c.demand)
		if got.Fits != c.fits || !strings.Contains(got.Text, c.text) || got.Room < 0 ||
			(got.DeviceRoom > 0) != (c.card > 0) {
			t.Errorf("%s: %+v, want %v with %q", c.name, got, c.fits, c.text)
		}
	}
}
