package front

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The ledger of memory. A model counts from the moment its process is started until the process has ended: weights, KV
// cells and buffers, whether they are touched or not; weights whose pages several processes share count once. The host
// tiers share what is left (hosttier.go). Models that wait for memory are served in the order in which they were asked,
// so that a large one is not passed over for ever.
//
// Models on discrete devices have a second ledger, of these devices' memory. A model has room where both have it.
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
	if n != daemon.KeepDefault {
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
		if best == 0 {
			f.fail(m, f.tooLarge(m))
			continue
		}
		enough := min(best, config.EnoughContext)
		if n := f.fit(m, (*served).takesMemory); n >= enough {
			f.queue = slices.Delete(f.queue, 0, 1)
			f.start(m, n)
			continue
		}
		f.makeRoom(m, enough)
		return
	}
}

// takesMemory reports whether the model has a process, or is about to have one.
func (m *served) takesMemory() bool { return m.proc != nil || m.state == starting }

// takes returns the memory that the models take for which counts returns true, in bytes. extra counts too.
func (f *Front) takes(counts func(*served) bool, extra *served) int64 {
	total, files := int64(0), map[string]int64{}
	for _, m := range f.models {
		if m.demand == nil || m != extra && !counts(m) {
			continue
		}
		if m != extra {
			total += m.demand.Private(m.tokens)
		}
		maps.Copy(files, m.demand.Mapped)
	}
	for _, n := range files {
		total += n
	}
	return total
}

// used returns the memory that models take at the moment, without host tiers.
func (f *Front) used() int64 { return f.takes((*served).takesMemory, nil) }

// fit returns the context with which m fits into memory beside the other models for which stays returns true; 0: it
// does not. An automatic context leaves some memory for the host tiers.
func (f *Front) fit(m *served, stays func(*served) bool) int {
	if f.full(m, stays) {
		return 0
	}
	room := f.limit - f.takes(func(o *served) bool { return o != m && stays(o) }, m)
	n := m.demand.Fit(room - min(f.hostMost, max(room-m.demand.Fixed, 0)/hostReserve))
	if n == 0 {
		n = m.demand.Fit(room)
	}
	return min(n, f.fitDevice(m, stays))
}

// fitDevice is fit of the devices' memory, beside which that of the host counts.
func (f *Front) fitDevice(m *served, stays func(*served) bool) int {
	if f.devices.limit == 0 || m.demand.Device == (config.DeviceDemand{}) {
		return m.demand.Most
	}
	return m.demand.FitDevice(f.devices.limit - f.onDevices(func(o *served) bool { return o != m && stays(o) }))
}

// onDevices returns the memory of the devices that the models take for which counts returns true, in bytes.
func (f *Front) onDevices(counts func(*served) bool) (total int64) {
	for _, m := range f.models {
		if m.demand != nil && counts(m) {
			total += m.onDevice()
		}
	}
	return total
}

// onDevice returns the memory of the devices that m takes, in bytes: by the engine's figures once it is loaded. A
// process that is unloaded has all of it until it has ended.
func (m *served) onDevice() int64 {
	if m.status.Devices > 0 {
		return min(m.status.Devices, m.f.devices.limit) + config.DriverBytes // the process is not trusted
	}
	return m.demand.Device.Bytes(m.tokens)
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

// hostReserve is the divisor of the memory for an automatic context that is left for host tiers.
const hostReserve = 32

// need returns the memory of the model, loaded or not, in bytes: weights, KV cells and buffers.
func (m *served) need() int64 {
	if m.demand == nil {
		return 0
	}
	return m.demand.Private(m.tokens) + m.demand.Weights()
}

func (f *Front) tooLarge(m *served) error {
	if f.full(m, func(o *served) bool { return o.pinned }) {
		return &wire.RequestError{Code: wire.ModelTooLarge, Message: fmt.Sprintf("model %s cannot be loaded: "+
			"--models-max is %d, and as many models are pinned", m.name, f.cfg.ModelsMax)}
	}
	pinnedElse := func(o *served) bool { return o != m && o.pinned }
	if f.fitDevice(m, pinnedElse) == 0 {
		text := fmt.Sprintf("model %s needs %s of the device's memory (weights, KV cells, buffers), and %s were free "+
			"on it at the start", m.name, bytesText(m.demand.Device.Bytes(m.demand.Least)), bytesText(f.devices.limit))
		if pinned := f.onDevices(pinnedElse); pinned > 0 {
			text += fmt.Sprintf(", of which pinned models have %s", bytesText(pinned))
		}
		return &wire.RequestError{Code: wire.ModelTooLarge, Message: text + "; use fewer --gpu-layers, " +
			"--no-kv-offload, a smaller --ctx-size, or a smaller model"}
	}
	least := m.demand.Private(m.demand.Least) + m.demand.Weights()
	text := fmt.Sprintf("model %s needs %s of memory (weights, KV cells, buffers), and --memory is %s", m.name,
		bytesText(least), bytesText(f.limit))
	if pinned := f.takes(pinnedElse, nil); pinned > 0 {
		text += fmt.Sprintf(", of which pinned models have %s", bytesText(pinned))
	}
	advice := "; raise --memory, or use a smaller model"
	if m.demand.Most == m.demand.Least {
		advice = "; raise --memory, or use a smaller --ctx-size (auto takes what fits)"
	}
	return &wire.RequestError{Code: wire.ModelTooLarge, Message: text + advice}
}

func bytesText(n int64) string { return ui.Bytes(uint64(max(n, 0))) }

// answerFirst is the time for which a model waits for busy ones to become idle. After it, one of those is unloaded when
// its running answers are finished, and its next requests wait in turn.
const answerFirst = 2 * time.Second

// makeRoom unloads the least recently used models, idle ones first, until m fits with a context of so many tokens.
// Models that are already being unloaded count as room.
func (f *Front) makeRoom(m *served, tokens int) {
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
		return f.fit(m, func(o *served) bool { return o.takesMemory() && !leaves[o] }) >= tokens
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
