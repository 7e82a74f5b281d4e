package front

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/front/ledger"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The ledger of memory. A model counts from the moment its process is started until the process has ended: weights, KV
// cells and buffers, whether they are touched or not; weights whose pages several processes share count once. The host
// tiers share what is left (hosttier.go). Models that wait for memory are served in the order in which they were asked,
// so that a large one is not passed over for ever.
//
// Each discrete device has a ledger. A model has room where the host has it and the devices on which its layers are
// put (config.Place).
//
// The context of a model is part of this where it is automatic: it gets what is free, and other models are unloaded for
// it only if that is less than config.EnoughContext. So a small model beside a large one costs the large one nothing
// while both have enough.

// look updates the time of a loaded model's last use, and unloads the model if it has been idle for too long.
func (f *Front) look(m *served, now time.Time) {
	if m.proc == nil {
		return
	}
	if begun := m.proc.table.Begun(); begun != m.begun || m.inside > 0 || m.proc.table.Answering() > 0 {
		m.begun, m.used = begun, now
	}
	after, leaves := m.leavesAfter()
	if m.state == ready && leaves && !m.busy() && now.Sub(m.used) >= max(after, leastIdle) {
		why := "--idle-unload"
		if m.keep.set {
			why = "keep_alive"
		}
		f.unload(m, fmt.Sprintf("idle for %v (%s)", after, why))
	}
}

// leastIdle is the time after which a model with keep_alive 0 is unloaded: the request that says so may not have begun.
const leastIdle = 100 * time.Millisecond

// keep is the keep_alive of a request.
type keep struct {
	set    bool
	during time.Duration
}

// leavesAfter returns the time without a request after which the model is unloaded; false: it stays.
func (m *served) leavesAfter() (time.Duration, bool) {
	switch {
	case m.pinned:
		return 0, false
	case m.keep.set:
		return m.keep.during, m.keep.during >= 0
	}
	return m.idle, m.idle > 0
}

// hearKeep takes a LinkKeep, which is untrusted.
func (m *served) hearKeep(body []byte) {
	n, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil {
		return
	}
	m.keep = keep{}
	if n != link.KeepDefault {
		m.keep = keep{set: true, during: time.Duration(max(n, -1))}
	}
	m.touch()
}

// admit starts the models that wait and have room, and makes room for the first of the others.
func (f *Front) admit() {
	for len(f.queue) > 0 && !f.draining {
		m := f.queue[0]
		if m.demand == nil {
			return // it is being made
		}
		best := f.fit(m, func(o *served) bool { return o.pinned })
		if best.Tokens == 0 {
			f.fail(m, f.tooLarge(m))
			continue
		}
		if p := f.fit(m, (*served).takesMemory); ledger.Enough(&p, &best) {
			f.queue = slices.Delete(f.queue, 0, 1)
			f.start(m, p)
			continue
		}
		f.makeRoom(m, &best)
		return
	}
}

// takesMemory reports whether the model has a process, or is about to have one.
func (m *served) takesMemory() bool { return m.proc != nil || m.state == starting }

// ledger returns the memory that there is.
func (f *Front) ledger() *ledger.Ledger {
	return &ledger.Ledger{Limit: f.limit, HostMost: f.hostMost, Rooms: f.devices.rooms}
}

// use returns what the model takes, or would take. Its demand is known.
func (m *served) use() ledger.Use {
	return ledger.Use{Demand: m.demand, Place: m.place, Placed: m.placed, Said: m.status.Devices}
}

// uses returns what the models take for which counts returns true.
func (f *Front) uses(counts func(*served) bool) (out []ledger.Use) {
	for _, m := range f.models {
		if m.demand != nil && counts(m) {
			out = append(out, m.use())
		}
	}
	return out
}

// used returns the memory that models take at the moment, without host tiers.
func (f *Front) used() int64 {
	n, _ := ledger.Takes(f.uses((*served).takesMemory))
	return n
}

// fit returns the place of m beside the other models for which stays returns true; its context is 0 if it does not fit.
func (f *Front) fit(m *served, stays func(*served) bool) config.Place {
	if f.full(m, stays) {
		return config.Place{}
	}
	return f.ledger().Place(m.demand, f.uses(func(o *served) bool { return o != m && stays(o) }))
}

// onDevices returns the memory of each device that m takes, in bytes.
func (m *served) onDevices() map[string]int64 {
	u := m.use()
	return m.f.ledger().OnDevices(&u)
}

// full reports whether --models-max leaves no place for m beside the models for which stays returns true.
func (f *Front) full(m *served, stays func(*served) bool) bool {
	if f.cfg.ModelsMax == 0 {
		return false
	}
	n := 0
	for _, o := range f.models {
		if o != m && stays(o) {
			n++
		}
	}
	return n >= f.cfg.ModelsMax
}

// need returns the memory of the model, loaded or not, in bytes: weights, KV cells and buffers.
func (m *served) need() int64 {
	if m.demand == nil {
		return 0
	}
	u := m.use()
	return u.Host()
}

func (f *Front) tooLarge(m *served) error {
	if f.full(m, func(o *served) bool { return o.pinned }) {
		return &wire.RequestError{Code: wire.ModelTooLarge, Message: fmt.Sprintf("model %s cannot be loaded: "+
			"--models-max is %d, and as many models are pinned", m.name, f.cfg.ModelsMax)}
	}
	return f.ledger().TooLarge(m.name, m.demand, f.uses(func(o *served) bool { return o != m && o.pinned }))
}

// answerFirst is the time for which a model waits for busy ones to become idle. After it, one of those is unloaded when
// its running answers are finished, and its next requests wait in turn.
const answerFirst = 2 * time.Second

// makeRoom unloads the least recently used models, idle ones first, until m has enough of the place that would be best.
// Models that are already being unloaded count as room.
func (f *Front) makeRoom(m *served, best *config.Place) {
	now := time.Now()
	leaves := map[*served]bool{}
	var candidates []*served
	for _, o := range f.models {
		if o.proc == nil {
			continue
		}
		if o.state == unloading {
			leaves[o] = true
			continue
		}
		f.look(o, now)
		if o.state == ready && !o.pinned && (!o.busy() || now.Sub(m.since) > answerFirst) {
			candidates = append(candidates, o)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *served) int {
		if a.busy() != b.busy() { // the idle ones first
			if b.busy() {
				return -1
			}
			return 1
		}
		return a.used.Compare(b.used)
	})
	fits := func() bool {
		p := f.fit(m, func(o *served) bool { return o.takesMemory() && !leaves[o] })
		return ledger.Enough(&p, best)
	}
	for _, o := range candidates {
		if fits() {
			return
		}
		leaves[o] = true
		f.unload(o, "memory for "+m.name)
	}
	if !fits() && !f.eager { // the busy models are checked again soon
		f.eager = true
		time.AfterFunc(roomEvery, func() {
			f.loop.Do(func() {
				f.eager = false
				f.admit()
			})
		})
	}
}

// roomEvery is the interval at which the front looks for memory while a model waits for it.
const roomEvery = 20 * time.Millisecond

// took replaces what was estimated of the model's memory by what its process says, within what it was given.
func (m *served) took(st *link.EngineStatus) {
	if n := st.Context; n > 0 && n <= m.place.Tokens {
		if m.demand.Least < m.demand.Most { // it may have found less memory than the ledger has
			m.place.Tokens = n
		}
		if per := st.Memory.KV / int64(n); per > 0 && per < m.demand.CellBytes && m.place.Layers() == 0 {
			m.demand.CellBytes, m.placed.CellBytes = per, per
		}
	}
}
