package front

import (
	"fmt"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/daemon/front/lastwords"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// crashLimit crashes within crashWindow keep a model down.
const (
	crashLimit  = 3
	crashWindow = time.Minute
)

// failedFor is the time for which a model whose file could not be loaded is not loaded again.
const failedFor = 5 * time.Second

// linkDown handles the end of the link to an engine process: the process has ended, or has sent an invalid message.
func (f *Front) linkDown(m *served, p *process, err error) {
	p.dead = true
	told := f.loop.Orphans(p.link, f.lastWords(m, p))
	if !p.leaving {
		p.kill() // it may still run after an invalid message
		f.log.Error("an engine process has ended by itself", "model", m.name, "pid", p.pid(), "connections", told,
			"link", err)
	}
}

// ended handles the end of an engine process.
func (f *Front) ended(m *served, p *process, werr error) {
	if !p.dead { // its last messages may not have been read yet
		p.link.Drain()
	}
	p.table.Close()
	if m.proc != p {
		return
	}
	m.proc, m.keep = nil, keep{}
	m.abandonChanges()
	f.endEvents(m)
	m.host = hostTier{weight: m.host.weight}
	f.leaveSeat(m)
	if err := m.counted.End(); err != nil {
		f.log.Warn("the last metrics of an engine process cannot be read", "model", m.name, "error", err)
	}
	orderly := p.leaving || werr == nil
	if orderly {
		m.unloads++
	} else {
		f.crash(m, werr)
	}
	switch {
	case m.down != nil:
		m.state = down
		f.refuseWaiting(m, m.down)
	default:
		m.state = unloaded
		if f.barred(m) {
			f.refuseWaiting(m, f.refusal(m.name))
		}
		if !f.draining && (len(m.waiting) > 0 || !orderly || m.pinned) {
			f.want(m)
		}
	}
	f.admit()
}

// crash counts an engine process that has ended by itself.
func (f *Front) crash(m *served, werr error) {
	now := time.Now()
	m.crashed++
	m.crashes = append(slices.DeleteFunc(m.crashes, func(t time.Time) bool { return now.Sub(t) > crashWindow }), now)
	f.log.Error("an engine process has crashed", "model", m.name, "how", werr, "crashes_in_a_minute", len(m.crashes))
	if len(m.crashes) >= m.f.opts.CrashLimit {
		m.down = wire.Errorf(wire.EngineCrashed, "model %s stays down: its engine process has crashed %d times "+
			"within %v, at last with %q; restart uma-serve to try again", m.name, len(m.crashes), crashWindow,
			fmt.Sprint(werr))
		m.retryAt = time.Time{}
		f.log.Error("the model stays down", "model", m.name)
	}
}

// retryAfterCrash is the retry_after of errors after a crash: an engine process is back as soon as its file is mapped.
const retryAfterCrash = time.Second

// lastWords returns the function that makes the last output to a client of an engine process that has ended.
func (f *Front) lastWords(m *served, p *process) func(*ipc.Conn, connstate.State, []string) ([]byte, bool) {
	e := wire.Error{Code: wire.EngineCrashed, RetryAfter: retryAfterCrash, Message: fmt.Sprintf(
		"the engine process of model %s has ended by itself, and this answer with it; it is being started again",
		m.name)}
	if p.leaving {
		e = wire.Error{Code: wire.ShuttingDown, RetryAfter: retryAfterCrash, Message: fmt.Sprintf(
			"model %s was unloaded before this answer was complete; send the request again", m.name)}
		if m.down != nil {
			e = *m.down
		}
	}
	return func(_ *ipc.Conn, st connstate.State, ids []string) ([]byte, bool) { return lastwords.Say(&e, st, ids) }
}
