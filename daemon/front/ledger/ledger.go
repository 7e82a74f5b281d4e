// Package ledger knows what engine processes take of --memory and of the devices' memory, and where one more has its
// place. Which models there are, which of them stay, and who makes room, the front knows.
package ledger

import (
	"fmt"
	"math"
	"slices"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Limit returns --memory in bytes.
func Limit(cfg *config.Config) (int64, error) {
	memory := hostmem.Read()
	free := memory.Available
	if free == 0 { // macOS and FreeBSD report the installed memory
		free = uint64(float64(memory.Total) * freeShare)
	}
	n, ok := cfg.Memory.Of(free)
	if !ok {
		n = int64(float64(free) * autoMemory)
	}
	if n == 0 {
		return 0, fmt.Errorf("--memory is %s, and this system does not tell how much memory it has: set a size, as in "+
			"--memory 24GiB", cfg.Memory.String())
	}
	return n, nil
}

const (
	autoMemory = 0.9  // the share of the free memory that --memory auto stands for
	freeShare  = 0.75 // of the installed memory, if a system does not report the free memory
)

// Ledger is the memory that there is.
type Ledger struct {
	Limit    int64         // of all engine processes, in bytes
	HostMost int64         // for the host tiers of all models
	Rooms    []config.Room // of discrete devices
}

// Use is the memory that a model takes, or would take.
type Use struct {
	Demand *config.Demand
	Place  config.Place
	Placed config.Demand    // Demand with Place's layers on devices
	Said   map[string]int64 // by device: what its process says, once it is loaded
}

// Host returns the memory of the host that the model takes: weights, KV cells and buffers.
func (u *Use) Host() int64 { return u.Placed.Private(u.Place.Tokens) + u.Placed.Weights() }

// Takes returns the memory of the host that models take together, and the files among it: weights whose pages several
// processes share count once.
func Takes(models []Use) (total int64, files map[string]int64) {
	files = map[string]int64{}
	for i := range models {
		u := &models[i]
		total += u.Placed.Private(u.Place.Tokens)
		for file, n := range u.Placed.Mapped {
			total += max(n-files[file], 0)
			files[file] = max(files[file], n)
		}
	}
	return total, files
}

// hostReserve is the divisor of the memory for an automatic context that is left for host tiers.
const hostReserve = 32

// Place returns the place of a model with this demand beside others; its context is 0 if it does not fit. An automatic
// context leaves some memory for the host tiers.
func (l *Ledger) Place(d *config.Demand, beside []Use) config.Place {
	taken, files := Takes(beside)
	room := func(on *config.Demand) int64 {
		n := l.Limit - taken
		for file, bytes := range on.Mapped {
			n -= max(bytes-files[file], 0)
		}
		return n
	}
	rooms := l.Left(beside)
	p := d.Place(func(on *config.Demand) int64 {
		n := room(on)
		return n - min(l.HostMost, max(n-on.Fixed, 0)/hostReserve)
	}, rooms)
	if p.Tokens == 0 {
		p = d.Place(room, rooms)
	}
	return p
}

// Enough reports whether a model is put into p rather than others are unloaded for it, with which it would have best.
func Enough(p, best *config.Place) bool {
	return p.Tokens >= min(best.Tokens, config.EnoughContext) && p.Layers() >= best.Layers()
}

// Left returns what models leave of each device.
func (l *Ledger) Left(beside []Use) []config.Room {
	rooms := slices.Clone(l.Rooms)
	for i := range beside {
		takes := l.OnDevices(&beside[i])
		for j := range rooms {
			rooms[j].Bytes = max(rooms[j].Bytes-takes[rooms[j].Device], 0)
		}
	}
	return rooms
}

// OnDevices returns the memory of each device that a model takes, in bytes: by the engine's figures once it is loaded.
// A process that is unloaded has all of it until it has ended.
func (l *Ledger) OnDevices(u *Use) map[string]int64 {
	takes := u.Demand.DeviceBytes(&u.Place)
	for _, r := range l.Rooms {
		if n := u.Said[r.Device]; n > 0 {
			takes[r.Device] = min(n, r.Bytes) + config.DriverBytes // the process is not trusted
		}
	}
	return takes
}

// TooLarge returns the error for a model that has no place beside those that are pinned.
func (l *Ledger) TooLarge(name string, d *config.Demand, pinned []Use) error {
	if least := d.LeastOnDevices(); least > 0 && len(l.Rooms) > 0 {
		left := l.Left(pinned)
		plenty := func(*config.Demand) int64 { return math.MaxInt64 }
		if p := d.Place(plenty, left); p.Tokens == 0 {
			return &wire.RequestError{Code: wire.ModelTooLarge,
				Message: report.TooLargeForDevices(name, least, l.Rooms, left)}
		}
	}
	on := d.Placed(d.Device.Most)
	text := fmt.Sprintf("model %s needs %s of memory (weights, KV cells, buffers), and --memory is %s", name,
		Text(on.Private(on.Least)+on.Weights()), Text(l.Limit))
	if taken, _ := Takes(pinned); taken > 0 {
		text += fmt.Sprintf(", of which pinned models have %s", Text(taken))
	}
	advice := "; raise --memory, or use a smaller model"
	if d.Most == d.Least {
		advice = "; raise --memory, or use a smaller --ctx-size (auto takes what fits)"
	}
	return &wire.RequestError{Code: wire.ModelTooLarge, Message: text + advice}
}

// Text returns a number of bytes for a reader.
func Text(n int64) string { return ui.Bytes(uint64(max(n, 0))) }
