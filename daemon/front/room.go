package front

import (
	"context"
	"fmt"
	"math"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The list of models tells which of them fit, by the rule of admit: what one needs with its smallest context must fit
// beside the pinned models. Nothing is loaded for it; the headers that the list has read are enough.

// fittingModels returns servedModels with whether each of them fits.
func (f *Front) fittingModels(ctx context.Context) []wire.ServedModel {
	listings := f.list(ctx)
	demands := make([]*config.Demand, len(listings))
	for i, l := range listings {
		demands[i] = f.demandOf(l)
	}
	fits := make([]*wire.ServedFit, len(listings))
	f.call(func() {
		for i, d := range demands {
			if d != nil {
				fits[i] = f.fitOf(listings[i].state, d)
			}
		}
	})
	out := []wire.ServedModel{}
	for i, l := range listings {
		m := l.model()
		m.Status.Fit = fits[i]
		if paged := i == 0 && f.cfg.Memory.Auto; paged && m.Status.Fit != nil && !m.Status.Fit.Fits {
			m.Status.Fit = nil // the default model may be paged: its process decides
		}
		out = append(append(out, m), l.adapters()...)
	}
	return out
}

// demandOf returns the memory that a model needs; nil: it is not known.
func (f *Front) demandOf(l *listing) *config.Demand {
	if l.header == nil {
		return nil
	}
	cfg := *l.cfg
	if l.details != nil { // found models have no draft model and no adapters
		cfg.DraftModel, cfg.LoRA = "", nil
	}
	cfg.Backends = f.seenDevices()
	d, err := cfg.DemandOf(&l.header.Info)
	if err != nil {
		return nil
	}
	return &d
}

// fitOf tells whether a model in a state, with this demand, fits beside the pinned ones. Poller's goroutine.
func (f *Front) fitOf(state state, d *config.Demand) *wire.ServedFit {
	pinned := func(m *served) bool { return m.pinned }
	small := *d
	small.Most = small.Least // whether it fits at all, not how large its context is
	taken, _ := f.takes(pinned)
	rooms := f.roomsBeside(pinned)
	best := f.fitDemand(&small, pinned)
	now := f.fitDemand(&small, (*served).takesMemory)
	layers := best.Layers()
	if best.Tokens == 0 {
		layers = d.Device.Most
	}
	on := d.Placed(layers)
	fit := &wire.ServedFit{Fits: best.Tokens > 0, Bytes: on.Private(d.Least) + on.Weights(),
		Room: max(f.limit-taken, 0)}
	for _, r := range rooms {
		if len(d.Device.Layers) > 0 {
			fit.DeviceRoom += r.Bytes
		}
	}
	for _, n := range d.DeviceBytes(&best) {
		fit.DeviceBytes += n
	}
	if best.Tokens == 0 {
		fit.DeviceBytes = d.LeastOnDevices()
	}
	plenty := d.Place(func(*config.Demand) int64 { return math.MaxInt64 }, rooms)
	needs := "needs at least " + bytesText(fit.Bytes)
	of := needs + " of " + bytesText(fit.Room)
	if fit.DeviceBytes > 0 {
		needs += fmt.Sprintf(" and %s on devices", bytesText(fit.DeviceBytes))
		of += fmt.Sprintf(", and %s of %s on devices", bytesText(fit.DeviceBytes), bytesText(fit.DeviceRoom))
		if n := len(d.Device.Layers); layers < n && best.Tokens > 0 {
			of += fmt.Sprintf(" with %d of its %d layers there", layers, n)
		}
	} else if len(d.Device.Layers) > 0 && d.Device.Most > 0 && best.Tokens > 0 {
		of += "; none of its layers fits on a device, so that the processor computes it"
	}
	switch {
	case state == ready:
		fit.Fits, fit.Text = true, "it is loaded; it "+needs
	case !fit.Fits && len(rooms) > 0 && plenty.Tokens == 0:
		fit.Text = fmt.Sprintf("it needs at least %s of the memory of devices (weights, KV cells, buffers), and %s are "+
			"left for it; use fewer --gpu-layers (auto takes what fits), or a smaller model", bytesText(fit.DeviceBytes),
			bytesText(fit.DeviceRoom))
	case !fit.Fits:
		fit.Text = fmt.Sprintf("it needs at least %s of memory (weights, KV cells, buffers), and %s are left for it; "+
			"raise --memory, or use a smaller model", bytesText(fit.Bytes), bytesText(fit.Room))
	case !enough(&now, &best):
		fit.Text = fmt.Sprintf("it %s; other models are unloaded for it", of)
	default:
		fit.Text = "it " + of
	}
	return fit
}
