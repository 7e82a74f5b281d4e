package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// FitFacts is a model's need of memory, and what there is for it.
type FitFacts struct {
	Demand *config.Demand
	Loaded bool
	Room   int64         // of the host, beside pinned models, in bytes
	Rooms  []config.Room // of devices, beside pinned models
	// Best is the place beside pinned models with the smallest context; Now: it is there beside all that are loaded.
	Best config.Place
	Now  bool
}

// Fit tells whether a model fits, in numbers and in a sentence.
func Fit(q *FitFacts) *reports.ServedFit {
	d := q.Demand
	fits, all := q.Best.Tokens > 0, len(d.Device.Layers)
	layers := q.Best.Layers()
	if !fits {
		layers = d.Device.Most
	}
	on := d.Placed(layers)
	fit := &reports.ServedFit{Fits: fits, Bytes: on.Private(d.Least) + on.Weights(), Room: max(q.Room, 0)}
	for _, r := range q.Rooms {
		if all > 0 {
			fit.DeviceRoom += r.Bytes
		}
	}
	for _, n := range d.DeviceBytes(&q.Best) {
		fit.DeviceBytes += n
	}
	if !fits {
		fit.DeviceBytes = d.LeastOnDevices()
	}
	needs := "needs at least " + size(fit.Bytes)
	of := needs + " of " + size(fit.Room)
	switch {
	case fit.DeviceBytes > 0:
		needs += fmt.Sprintf(" and %s on devices", size(fit.DeviceBytes))
		of += fmt.Sprintf(", and %s of %s on devices", size(fit.DeviceBytes), size(fit.DeviceRoom))
		if layers < all {
			of += fmt.Sprintf(" with %d of its %d layers there", layers, all)
		}
	case fits && all > 0 && d.Device.Most > 0:
		of += "; none of its layers fits on a device, so that the processor computes it"
	}
	plenty := func(*config.Demand) int64 { return math.MaxInt64 }
	switch {
	case q.Loaded:
		fit.Fits, fit.Text = true, "it is loaded; it "+needs
	case !fits && len(q.Rooms) > 0 && d.Place(plenty, q.Rooms).Tokens == 0:
		fit.Text = fmt.Sprintf("it needs at least %s of the memory of devices (weights, KV cells, buffers), and %s "+
			"are left for it; use fewer --gpu-layers (auto takes what fits), or a smaller model",
			size(fit.DeviceBytes), size(fit.DeviceRoom))
	case !fits:
		fit.Text = fmt.Sprintf("it needs at least %s of memory (weights, KV cells, buffers), and %s are left for it; "+
			"raise --memory, or use a smaller model", size(fit.Bytes), size(fit.Room))
	case !q.Now:
		fit.Text = fmt.Sprintf("it %s; other models are unloaded for it", of)
	default:
		fit.Text = "it " + of
	}
	return fit
}

func size(n int64) string { return ui.Bytes(uint64(max(n, 0))) }

// TooLargeForDevices says that a model needs at least so many bytes of devices: rooms is what models may take of them,
// left what pinned models leave.
func TooLargeForDevices(model string, least int64, rooms, left []config.Room) string {
	var all, free int64
	names := make([]string, len(rooms))
	for i, r := range rooms {
		names[i] = r.Device
		all, free = all+r.Bytes, free+left[i].Bytes
	}
	text := fmt.Sprintf("model %s needs %s of the memory of devices (weights, KV cells, buffers), and %s were free on "+
		"%s at the start", model, size(least), size(all), strings.Join(names, " and "))
	if free < all {
		text += fmt.Sprintf(", of which pinned models have %s", size(all-free))
	}
	return text + "; use fewer --gpu-layers (auto takes what fits), --no-kv-offload, a smaller --ctx-size, or a " +
		"smaller model"
}
