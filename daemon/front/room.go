package front

import (
	"context"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/front/ledger"
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
		demands[i] = l.Demand(*f.devices.seen.Load())
	}
	fits := make([]*reports.ServedFit, len(listings))
	f.call(func() {
		for i, d := range demands {
			if d != nil {
				fits[i] = f.fitOf(listings[i].Ready, d)
			}
		}
	})
	out := []reports.ServedModel{}
	for i, l := range listings {
		m := l.Model()
		m.Status.Fit = fits[i]
		if paged := i == 0 && f.cfg.Memory.Auto; paged && m.Status.Fit != nil && !m.Status.Fit.Fits {
			m.Status.Fit = nil // the default model may be paged: its process decides
		}
		out = append(append(out, m), l.Adapters()...)
	}
	return out
}

// fitOf tells whether a model with this demand, loaded or not, fits beside the pinned ones. Poller's goroutine.
func (f *Front) fitOf(loaded bool, d *config.Demand) *reports.ServedFit {
	pinned := func(m *served) bool { return m.pinned }
	small := *d
	small.Most = small.Least // whether it fits at all, not how large its context is
	l, stay := f.ledger(), f.uses(pinned)
	taken, _ := ledger.Takes(stay)
	best, now := l.Place(&small, stay), l.Place(&small, f.uses((*served).takesMemory))
	return report.Fit(&report.FitFacts{Demand: d, Loaded: loaded, Room: f.limit - taken,
		Rooms: l.Left(stay), Best: best, Now: ledger.Enough(&now, &best)})
}
