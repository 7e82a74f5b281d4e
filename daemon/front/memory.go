package front

import (
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The ledger of memory. A model counts with its estimate from the moment its process is started until the process has
// ended: weights, KV cells and host tier, whether they are touched or not. Models that wait for memory are served in
// the order in which they were asked, so that a large one is not passed over for ever.

// look updates the time of a loaded model's last use, and unloads the model if it has been idle for too long.
func (f *Front) look(m *served, now time.Time) {
	if m.proc == nil {
		return
	}
	if begun := m.proc.table.Begun(); begun != m.begun || m.busy() {
		m.begun, m.used = begun, now
	}
	if m.state == ready && !m.pinned && m.idle > 0 && now.Sub(m.used) >= m.idle {
		f.unload(m, fmt.Sprintf("idle for %v (--idle-unload)", m.idle))
	}
}

// admit starts the models that wait and have room, and makes room for the first of the others.
func (f *Front) admit() {
	for len(f.queue) > 0 && !f.draining {
		m := f.queue[0]
		switch {
		case m.need == 0:
			return // its estimate is being made
		case m.need > f.limit-f.pinnedBeside(m):
			f.fail(m, f.tooLarge(m))
		case f.used+m.need <= f.limit:
			f.queue = slices.Delete(f.queue, 0, 1)
			f.start(m)
		default:
			f.makeRoom(m)
			return
		}
	}
}

// pinnedBeside returns the memory of the pinned models other than m, which are never unloaded.
func (f *Front) pinnedBeside(m *served) (n int64) {
	for _, o := range f.models {
		if o != m && o.pinned {
			n += o.need
		}
	}
	return n
}

func (f *Front) tooLarge(m *served) error {
	text := fmt.Sprintf("model %s needs %s of memory (weights, KV cells, host tier), and --memory is %s", m.name,
		bytesText(m.need), bytesText(f.limit))
	if pinned := f.pinnedBeside(m); pinned > 0 {
		text += fmt.Sprintf(", of which pinned models have %s", bytesText(pinned))
	}
	return &wire.RequestError{Code: wire.ModelTooLarge, Message: text + "; raise --memory, or use a smaller " +
		"--ctx-size or --cache-ram"}
}

func bytesText(n int64) string { return ui.Bytes(uint64(max(n, 0))) }

// answerFirst is the time for which a model waits for busy ones to become idle. After it, one of those is unloaded when
// its running answers are finished, and its next requests wait in turn.
const answerFirst = 2 * time.Second

// makeRoom unloads the least recently used models, idle ones first, until m fits. Models that are already being
// unloaded count as room.
func (f *Front) makeRoom(m *served) {
	now := time.Now()
	short := f.used + m.need - f.limit
	var candidates []*served
	for _, o := range f.models {
		if o.proc == nil {
			continue
		}
		if o.state == unloading {
			short -= o.need
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
	for _, o := range candidates {
		if short <= 0 {
			return
		}
		short -= o.need
		f.unload(o, "memory for "+m.name)
	}
	if short > 0 && !f.eager { // the busy models are checked again soon
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
