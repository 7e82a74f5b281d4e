package front

import (
	"context"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// The list of models tells which of them fit, by the rule of admit: what one needs with its smallest context must fit
// beside the pinned models. Nothing is loaded for it; the headers that the list has read are enough.

// fittingModels returns servedModels with whether each of them fits.
func (f *Front) fittingModels(ctx context.Context) []reports.ServedModel {
	listings := f.list(ctx)
	demands := make([]*config.Demand, len(listings))
	for i, l := range listings {
		demands[i] = f.demandOf(l)
	}
	fits := make([]*reports.ServedFit, len(listings))
	f.call(func() {
		for i, d := range demands {
			if d != nil {
				fits[i] = f.fitOf(listings[i].state, d)
			}
		}
	})
	out := []reports.ServedModel{}
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
	cfg.Backends = *f.devices.seen.Load()
	d, err := cfg.DemandOf(&l.header.Info)
	if err != nil {
		return nil
	}
	return &d
}

// fitOf tells whether a model in a state, with this demand, fits beside the pinned ones. Poller's goroutine.
func (f *Front) fitOf(state state, d *config.Demand) *reports.ServedFit {
	pinned := func(m *served) bool { return m.pinned }
	small := *d
	small.Most = small.Least // whether it fits at all, not how large its context is
	taken, _ := f.takes(pinned)
	best, now := f.fitDemand(&small, pinned), f.fitDemand(&small, (*served).takesMemory)
	return report.Fit(&report.FitFacts{Demand: d, Loaded: state == ready, Room: f.limit - taken,
		Rooms: f.roomsBeside(pinned), Best: best, Now: enough(&now, &best)})
}
