package front

import (
	"context"
	"fmt"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The list of models tells which of them fit, by the rule of admit: what one needs with its smallest context must fit
// beside the pinned models. Nothing is loaded for it; the headers that the list has read are enough.

// fittingModels returns servedModels with whether each of them fits.
func (f *Front) fittingModels(ctx context.Context) []wire.ServedModel {
	listings := f.list(ctx)
	var room, free int64
	f.call(func() {
		room = f.limit - f.takes(func(m *served) bool { return m.pinned }, nil)
		free = f.limit - f.used()
	})
	out := []wire.ServedModel{}
	for i, l := range listings {
		m := l.model()
		m.Status.Fit = l.fit(f.needOf(l), room, free)
		if paged := i == 0 && f.cfg.Memory.Auto; paged && m.Status.Fit != nil && !m.Status.Fit.Fits {
			m.Status.Fit = nil // the default model may be paged: its process decides
		}
		out = append(append(out, m), l.adapters()...)
	}
	return out
}

// needOf returns the memory that a model needs at least; 0: it is not known.
func (f *Front) needOf(l *listing) int64 {
	if l.header == nil {
		return 0
	}
	cfg := *l.cfg
	if l.details != nil { // found models have no draft model and no adapters
		cfg.DraftModel, cfg.LoRA = "", nil
	}
	d, err := cfg.DemandOf(&l.header.Info)
	if err != nil {
		return 0
	}
	return d.Private(d.Least) + d.Weights()
}

// fit tells whether a model that needs so many bytes fits. room is the memory that models may have without what pinned
// ones take, free is what no model takes.
func (l *listing) fit(need, room, free int64) *wire.ServedFit {
	if need <= 0 {
		return nil
	}
	room = max(room, 0)
	fit := &wire.ServedFit{Fits: need <= room, Bytes: need, Room: room}
	switch {
	case l.state == ready:
		fit.Fits, fit.Text = true, fmt.Sprintf("it is loaded; it needs at least %s", bytesText(need))
	case !fit.Fits:
		fit.Text = fmt.Sprintf("it needs at least %s of memory (weights, KV cells, buffers), and %s are left for it; "+
			"raise --memory, or use a smaller model", bytesText(need), bytesText(room))
	case need > free:
		fit.Text = fmt.Sprintf("it needs at least %s of %s; other models are unloaded for it", bytesText(need),
			bytesText(room))
	default:
		fit.Text = fmt.Sprintf("it needs at least %s of %s", bytesText(need), bytesText(room))
	}
	return fit
}
