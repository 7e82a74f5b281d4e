package front

import (
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/front/engineproc"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/ipc/wire/split"
)

// The answers to health, info, metrics, kv and why cover all engine processes. Each process is asked over a connection
// that the front makes in the asker's name: it answers as it would answer the client itself.

// answerWithin is the longest time for which the front waits for the engine processes' answers; a late one is left out.
const answerWithin = 2 * time.Second

// Admin answers a question of the framed or the newline protocol. A front opens no client within the process.
func (h handler) Admin(client ipc.Client, q *wire.Frame) {
	c := client.(*ipc.Conn)
	f, question, peer := h.f, *q, c.Peer()
	lines := c.Protocol() == split.Newline
	if q.Kind == wire.KindHealth {
		c.ReplyEvent(wire.ReportEvent(q.Kind, q.ID, api.MustJSON(f.health())))
		return
	}
	done := c.Pend()
	replies := f.ask(peer, &question)
	go func() {
		defer done()
		body, e := f.answer(&question, peer, replies())
		switch {
		case e != nil:
			e.ID = question.ID
			c.ReplyEvent(wire.ErrorEvent(e))
		case lines:
			c.ReplyLast(append(body, '\n'))
		default:
			c.ReplyEvent(wire.ReportEvent(question.Kind, question.ID, body))
		}
	}()
}

// ask sends a question to every process that is ready. The function that it returns waits for the answers; it is called
// beside the poller's goroutine. In order of the models, the default one first.
func (f *Front) ask(peer ipc.Peer, q *wire.Frame) (replies func() []report.Reply) {
	var frame []byte
	switch q.Kind {
	case wire.KindWhy:
		frame = frames.AppendWhyQuestion(nil, "front", &q.Why)
	case wire.KindKV:
		frame = frames.AppendKVQuestion(nil, "front", &q.KV)
	default:
		frame = frames.AppendAdmin(nil, q.Kind, "front")
	}
	list := f.reach(peer)
	return func() []report.Reply {
		out := make([]report.Reply, len(list))
		var wg sync.WaitGroup
		for i, a := range list {
			wg.Go(func() {
				body, e, err := engineproc.Report(a.fd, frame, answerWithin)
				if err != nil {
					f.log.Warn("an engine process does not answer", "model", a.m.name, "question", q.Kind.String(),
						"error", err)
				}
				out[i] = report.Reply{Model: a.m.name, Body: body, Err: e}
			})
		}
		wg.Wait()
		return slices.DeleteFunc(out, func(p report.Reply) bool { return p.Body == nil && p.Err == nil })
	}
}

// asked is a connection to a model's engine process.
type asked struct {
	m    *served
	proc *process // of m
	fd   int
}

// reach connects to every engine process in a client's name. The caller closes the connections.
func (f *Front) reach(peer ipc.Peer) (list []asked) {
	for _, m := range f.inOrder() {
		if m.proc == nil || m.proc.dead || m.state != ready && m.state != loading {
			continue
		}
		fd, err := f.loop.PassNew(m.proc.link, insider(peer))
		if err != nil {
			f.log.Warn("an engine process cannot be asked", "model", m.name, "error", err)
			continue
		}
		list = append(list, asked{m, m.proc, fd})
	}
	return list
}

// inOrder returns the models, the default one first.
func (f *Front) inOrder() []*served {
	out := []*served{f.def}
	for _, m := range f.models {
		if m != f.def {
			out = append(out, m)
		}
	}
	return out
}

// answer puts the engine processes' answers together.
func (f *Front) answer(q *wire.Frame, peer ipc.Peer, replies []report.Reply) ([]byte, *wire.Error) {
	switch q.Kind {
	case wire.KindInfo:
		own := f.in.Info()
		f.call(func() {
			own.Status = f.health().Status
			own.Models = f.views()
		})
		return api.MustJSON(report.MergeInfo(own, replies)), nil
	case wire.KindMetrics:
		return f.metrics(replies), nil
	case wire.KindWhy:
		return api.MustJSON(report.MergeWhy(replies, f.waiting(q.Why, peer), q.Why.Last)), nil
	case wire.KindKV:
		if q.KV.Op == wire.KVShow {
			return documentOf(report.MergeKV(replies))
		}
		return documentOf(report.MergeKVDone(&q.KV, replies))
	}
	return nil, wire.Errorf(wire.BadRequest, "the question %q is not known", q.Kind)
}

// documentOf returns v as JSON, or the error.
func documentOf[T any](v T, e *wire.Error) ([]byte, *wire.Error) {
	if e != nil {
		return nil, e
	}
	return api.MustJSON(v), nil
}

// health returns the state of the default model, which requests without a model's name use: other models load on
// demand. Poller's goroutine.
func (f *Front) health() reports.Health {
	h := reports.Health{Type: "health", Status: "ok", Progress: 1, UptimeMs: time.Since(f.in.Begun).Milliseconds(),
		Listen: f.in.Addresses().Listen, Models: map[string]string{}}
	for _, m := range f.models {
		h.Models[m.name] = m.state.String()
		if m.stalled() {
			h.Models[m.name] = "stalled"
		}
		h.Requests += int64(len(m.waiting))
		if m.proc != nil && !m.proc.dead {
			h.Requests += int64(m.proc.table.InFlight())
		}
	}
	switch f.def.state {
	case unloaded:
		if !f.def.wasReady { // it is about to be loaded
			h.Status, h.Progress = "loading", 0
		}
	case starting, loading, queued:
		h.Status, h.Progress = "loading", f.def.status.Progress
	}
	if f.def.down != nil { // also while the process that could not load it is still ending
		h.Status, h.Progress = "down", 0
	}
	if f.draining {
		h.Status = "draining"
	}
	// It overrides "draining": a drain that hangs never ends.
	if f.def.stalled() {
		since := f.def.status.Stalled
		h.Status, h.StalledSince, h.StalledMs = "stalled", since.UTC().Format(time.RFC3339),
			time.Since(since).Milliseconds()
	}
	h.Arbiter = f.arbiter()
	return h
}

// views returns the entries of all models in info. Poller's goroutine.
func (f *Front) views() (out []reports.InfoServed) {
	for _, m := range f.models {
		out = append(out, m.view())
	}
	return out
}

// view returns the model's entry in info.
func (m *served) view() reports.InfoServed {
	s := reports.InfoServed{Name: m.name, Aliases: m.aliases, Default: m == m.f.def, Pinned: m.pinned,
		State: m.state.String(), MemoryBytes: m.need() + m.host.bytes, HostTierBytes: m.host.bytes,
		Waiting: len(m.waiting), Loads: m.loads, Unloads: m.unloads, Crashes: m.crashed}
	if m.down != nil {
		s.Error = m.down.Message
	}
	if m.proc != nil {
		s.PID, s.Connections, s.Progress = m.proc.pid(), m.conns(), m.status.Progress
		s.InFlight, s.IdleMs = m.proc.table.InFlight(), wire.Ms(time.Since(m.used))
	}
	return s
}

// metrics returns the metrics of all processes (report.MergeMetrics) and the models.
func (f *Front) metrics(replies []report.Reply) []byte {
	var own report.MetricsDocument
	if err := json.Unmarshal(f.in.Metrics.AppendJSON(nil), &own); err != nil {
		f.log.Warn("the front's own metrics cannot be read", "error", err)
	}
	doc := report.MergeMetrics(own, replies, f.in.Metrics.OfConnections(), f.in.Metrics.OfFront(), func(model string) {
		f.log.Warn("the metrics of a process cannot be read", "model", model)
	})
	var served []reports.InfoServed
	f.call(func() { served = f.views() })
	doc["served"] = api.MustJSON(served)
	return api.MustJSON(doc)
}

// dumpMetrics writes the metrics of all models to the log as JSON.
func (f *Front) dumpMetrics() {
	replies := func() []report.Reply { return nil }
	f.call(func() {
		replies = f.ask(ipc.Peer{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())},
			&wire.Frame{Kind: wire.KindMetrics})
	})
	report.DumpMetrics(f.metrics(replies()), f.log)
}

// waiting returns the requests that wait for a model, as far as a why question is about them.
func (f *Front) waiting(q wire.WhyQuestion, peer ipc.Peer) (list []reports.WhyRequest) {
	f.call(func() {
		for _, m := range f.models {
			for _, c := range m.waiting {
				if of := c.Peer(); q.Request == "" && (of.UID == peer.UID || f.cfg.Privileged(peer.UID)) {
					list = append(list, m.waits(of))
				}
			}
		}
	})
	return list
}

// waits describes a connection that waits for the model.
func (m *served) waits(peer ipc.Peer) reports.WhyRequest {
	age := wire.Ms(time.Since(m.since))
	d := reports.Decision{LastMs: age, Times: 1}
	d.Reason, d.Text = m.waitsFor()
	return reports.WhyRequest{Model: m.name, UID: peer.UID, Class: "interactive", State: "queued", AgeMs: age,
		Decisions: []reports.Decision{d}}
}
