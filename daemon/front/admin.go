package front

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/client/frames"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
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
		c.ReplyEvent(wire.ReportEvent(q.Kind, q.ID, mustJSON(f.health())))
		return
	}
	done := c.Pend()
	parts := f.ask(peer, &question)
	go func() {
		defer done()
		body, e := f.answer(&question, peer, parts())
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

// part is an engine process's answer.
type part struct {
	m    *served
	body json.RawMessage
	err  *wire.Error
}

// ask sends a question to every process that is ready. The function that it returns waits for the answers; it is called
// beside the poller's goroutine. In order of the models, the default one first.
func (f *Front) ask(peer ipc.Peer, q *wire.Frame) (parts func() []part) {
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
	return func() []part {
		out := make([]part, len(list))
		var wg sync.WaitGroup
		for i, a := range list {
			wg.Go(func() {
				body, e, err := exchange(a.fd, frame)
				if err != nil {
					f.log.Warn("an engine process does not answer", "model", a.m.name, "question", q.Kind.String(),
						"error", err)
				}
				out[i] = part{a.m, body, e}
			})
		}
		wg.Wait()
		return slices.DeleteFunc(out, func(p part) bool { return p.body == nil && p.err == nil })
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

// exchange asks over a connection, which it closes, and returns the report or the error event.
func exchange(fd int, frame []byte) (json.RawMessage, *wire.Error, error) {
	file := os.NewFile(uintptr(fd), "engine")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return nil, nil, err
	}
	if _, err := conn.Write(frame); err != nil {
		return nil, nil, err
	}
	split, parser := split.Frames{Max: wire.MaxEventBytes}, frames.Parser{}
	in := make([]byte, 64<<10)
	for {
		n, err := conn.Read(in)
		payload, _, serr := split.Next(in[:n])
		if serr != nil {
			return nil, nil, serr
		}
		if payload != nil {
			var ev wire.Event
			if err := parser.ParseEvent(payload, &ev); err != nil {
				return nil, nil, err
			}
			if ev.Kind == wire.EventError {
				return nil, &ev.Error, nil
			}
			return ev.Report, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// answer puts the engine processes' answers together.
func (f *Front) answer(q *wire.Frame, peer ipc.Peer, parts []part) ([]byte, *wire.Error) {
	switch q.Kind {
	case wire.KindInfo:
		return f.info(parts), nil
	case wire.KindMetrics:
		return f.metrics(parts), nil
	case wire.KindWhy:
		return f.why(q.Why, peer, parts), nil
	case wire.KindKV:
		if q.KV.Op == wire.KVShow {
			return kv(parts)
		}
		return kvDone(&q.KV, parts)
	}
	return nil, &wire.Error{Code: wire.BadRequest, Message: fmt.Sprintf("the question %q is not known", q.Kind)}
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
	case down:
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

// info returns the default model's report, with the list of all models.
func (f *Front) info(parts []part) []byte {
	own := f.in.Info()
	in := own
	byModel := map[*served]*reports.Info{}
	for i, p := range parts {
		var of reports.Info
		if json.Unmarshal(p.body, &of) != nil {
			continue
		}
		byModel[p.m] = &of
		if i == 0 { // the default model's, or that of the first one that is loaded
			in = of
			in.PID, in.Socket, in.Listeners, in.UptimeMs = own.PID, own.Socket, own.Listeners, own.UptimeMs
			in.Live.Sessions, in.Live.Descriptors, in.Live.Goroutines = own.Live.Sessions, own.Live.Descriptors,
				own.Live.Goroutines
		}
	}
	f.call(func() {
		h := f.health()
		in.Status = h.Status
		for _, m := range f.models {
			s := m.view()
			s.Info = byModel[m]
			in.Models = append(in.Models, s)
		}
	})
	return mustJSON(in)
}

// view returns the model's entry in info.
func (m *served) view() reports.InfoServed {
	s := reports.InfoServed{Name: m.name, Aliases: m.aliases, Default: m == m.f.def, Pinned: m.pinned,
		State: m.state.String(), MemoryBytes: m.need() + m.host.held, HostTierBytes: m.host.held,
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

// metrics returns the default process's document, with the front's counts of connections, the documents of all models
// by name, and the front's counters.
func (f *Front) metrics(parts []part) []byte {
	type document map[string]json.RawMessage
	read := func(body []byte) (d document) {
		if err := json.Unmarshal(body, &d); err != nil {
			f.log.Warn("the metrics of a process cannot be read", "error", err)
		}
		return d
	}
	own := read(f.in.Metrics.AppendJSON(nil))
	doc := own
	models := map[string]json.RawMessage{}
	for i, p := range parts {
		if p.err != nil {
			continue
		}
		models[p.m.name] = p.body
		if d := read(p.body); i == 0 && d != nil {
			doc = d
		}
	}
	doc = maps.Clone(doc)
	for _, key := range f.in.Metrics.OfConnections() {
		doc[key] = own[key]
	}
	front := document{}
	for _, key := range f.in.Metrics.OfFront() {
		front[key] = own[key]
	}
	var served []reports.InfoServed
	f.call(func() {
		for _, m := range f.models {
			served = append(served, m.view())
		}
	})
	doc["front"], doc["served"], doc["models"] = mustJSON(front), mustJSON(served), mustJSON(models)
	return mustJSON(doc)
}

// dumpMetrics writes the metrics of all models to the log as JSON.
func (f *Front) dumpMetrics() {
	parts := func() []part { return nil }
	f.call(func() {
		parts = f.ask(ipc.Peer{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), PID: int32(os.Getpid())},
			&wire.Frame{Kind: wire.KindMetrics})
	})
	report.DumpMetrics(f.metrics(parts()), f.log)
}

// why returns the requests of all processes, newest first, and those that wait for a model.
func (f *Front) why(q wire.WhyQuestion, peer ipc.Peer, parts []part) []byte {
	rep := reports.WhyReport{Requests: []reports.WhyRequest{}}
	for _, p := range parts {
		var of reports.WhyReport
		if json.Unmarshal(p.body, &of) == nil {
			for i := range of.Requests {
				of.Requests[i].Model = p.m.name
			}
			rep.Requests = append(rep.Requests, of.Requests...)
		}
	}
	f.call(func() {
		for _, m := range f.models {
			for _, c := range m.waiting {
				if of := c.Peer(); q.Request == "" && (of.UID == peer.UID || f.cfg.Privileged(peer.UID)) {
					rep.Requests = append(rep.Requests, m.waits(of))
				}
			}
		}
	})
	slices.SortStableFunc(rep.Requests, func(a, b reports.WhyRequest) int { return cmp.Compare(a.AgeMs, b.AgeMs) })
	rep.Requests = rep.Requests[:min(len(rep.Requests), cmp.Or(q.Last, wire.MaxLast))]
	return mustJSON(rep)
}

// waits describes a connection that waits for the model.
func (m *served) waits(peer ipc.Peer) reports.WhyRequest {
	age := wire.Ms(time.Since(m.since))
	d := reports.Decision{LastMs: age, Times: 1}
	d.Reason, d.Text = m.waitsFor()
	return reports.WhyRequest{Model: m.name, UID: peer.UID, Class: "interactive", State: "queued", AgeMs: age,
		Decisions: []reports.Decision{d}}
}

// kv returns the first process's report, with the reports of all processes by model.
func kv(parts []part) ([]byte, *wire.Error) {
	var rep *reports.KVReport
	all := map[string]*reports.KVReport{}
	var failed *wire.Error
	for _, p := range parts {
		var of reports.KVReport
		if p.err != nil || json.Unmarshal(p.body, &of) != nil {
			failed = cmp.Or(failed, p.err)
			continue
		}
		all[p.m.name] = &of
		if rep == nil {
			rep = &of
		}
	}
	switch {
	case rep == nil && failed != nil:
		return nil, failed
	case rep == nil:
		return nil, &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second, Message: "no model is loaded"}
	}
	top := *rep
	top.Models = all
	return mustJSON(top), nil
}

// kvDone returns the sum of an operation's results over all processes; an error when none of them has such an entry.
func kvDone(q *wire.KVQuestion, parts []part) ([]byte, *wire.Error) {
	sum := reports.KVDone{Op: q.Op.String(), Target: q.Target}
	var failed *wire.Error
	did := 0
	for _, p := range parts {
		var of reports.KVDone
		if p.err != nil || json.Unmarshal(p.body, &of) != nil {
			failed = cmp.Or(failed, p.err)
			continue
		}
		did++
		sum.Done, sum.Tokens, sum.Bytes = sum.Done+of.Done, sum.Tokens+of.Tokens, sum.Bytes+of.Bytes
		if sum.Text != "" {
			sum.Text += " "
		}
		sum.Text += p.m.name + ": " + of.Text
	}
	if did == 0 {
		return nil, cmp.Or(failed, &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second,
			Message: "no model is loaded"})
	}
	return mustJSON(sum), nil
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("front: status: " + err.Error()) // plain structs of numbers and strings
	}
	return b
}
