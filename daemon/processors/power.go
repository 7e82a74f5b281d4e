package processors

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/host/cpus"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/metrics"
)

// powerEvery is the time between two readings of energy and battery. They happen outside of the decode loop, because
// reading a battery may take milliseconds.
const powerEvery = 10 * time.Second

// PowerSource provides the readings: cpus.Power, or a test's.
type PowerSource interface {
	Metered() bool
	HasBattery() bool
	Joules() float64
	OnBattery() bool
}

var _ PowerSource = (*cpus.Power)(nil)

// quietThreads returns the number of compute threads for --power quiet: half of most. Decoding waits for memory more
// than for arithmetic, so half of the cores give more than half of the speed, and each further one costs more energy
// per token.
func quietThreads(most int) int { return max(1, most/2) }

// Power follows --power: it reads energy and battery, and limits the compute threads.
type Power struct {
	Mode    string // of --power
	Source  PowerSource
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Threads *Processors // set before Watch

	joules float64
	tokens uint64
	per    float64 // joules of each token; 0 = not known
	view   atomic.Pointer[reports.InfoPower]
}

// View returns the newest reading for info; nil: there is none. Safe from any goroutine.
func (w *Power) View() *reports.InfoPower { return w.view.Load() }

// Watch tells the decode loop how many threads --power allows: now, and where there is a battery or a meter every 10 s
// until stop is called.
func (w *Power) Watch() (stop func()) {
	w.look()
	if !w.Source.Metered() && !w.Source.HasBattery() {
		return func() {}
	}
	t, done := time.NewTicker(powerEvery), make(chan struct{})
	go func() {
		for {
			select {
			case <-t.C:
				w.look()
			case <-done:
				return
			}
		}
	}()
	return func() { t.Stop(); close(done) }
}

func (w *Power) look() {
	p := metrics.Power{Joules: -1, PerToken: -1, OnBattery: w.Source.OnBattery()}
	if w.Source.Metered() {
		p.Joules = w.Source.Joules()
		tokens := w.Metrics.TokensGenerated.Value()
		if n := tokens - w.tokens; n > 0 {
			w.per = (p.Joules - w.joules) / float64(n)
		}
		w.joules, w.tokens = p.Joules, tokens
		if w.per > 0 {
			p.PerToken = w.per
		}
	}
	w.Metrics.SetPower(p)
	mode := w.Mode
	quiet := mode == config.PowerQuiet || mode == config.PowerAuto && p.OnBattery
	part := func(most int) int { return most }
	if quiet {
		part = quietThreads
	}
	if n, most, changed, ok := w.Threads.Want(part); ok && changed {
		w.Log.Info("power", "mode", mode, "on_battery", p.OnBattery, "threads", n, "of", most)
	}
	in := &reports.InfoPower{Mode: mode, Quiet: quiet, OnBattery: p.OnBattery}
	if p.Joules >= 0 {
		in.Joules = &p.Joules
	}
	if p.PerToken >= 0 {
		in.JoulesPerToken = &p.PerToken
	}
	w.view.Store(in)
}
