package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/daemon/account"
	"github.com/uma-serve/uma-serve/daemon/entry"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
)

// stallAfter is the time without progress after which health says "stalled" for a daemon with work. The batch size
// bounds a step: half a minute is far beyond any step of a usable model.
const stallAfter = 30 * time.Second

func (s *Server) health() reports.Health {
	now := time.Now()
	v := report.Vitals{Uptime: now.Sub(s.in.Begun), Listen: s.in.Addresses().Listen, Draining: s.draining.Load()}
	l := s.loop.Load()
	if l == nil {
		v.Loaded, v.Requests = s.about.LoadProgress(), s.room.Count()
		return report.Health(&v, now)
	}
	v.Ready, v.Requests = true, l.state.requests.Load()
	if last := l.state.lastStep.Load(); last != 0 {
		v.LastStep = time.Unix(0, last)
	}
	if since, ok := l.state.stalled(now, stallAfter); ok {
		v.Stalled = since
		s.log.Error("stalled: requests are live, but no decode step has ended", "since",
			since.UTC().Format(time.RFC3339), "requests", v.Requests)
	}
	return report.Health(&v, now)
}

// stalled reports whether the loop has had work for longer than limit without progress, and the time of the newest
// progress.
func (st *loopState) stalled(now time.Time, limit time.Duration) (since time.Time, ok bool) {
	busy := st.busySince.Load()
	since = time.Unix(0, max(busy, st.lastStep.Load()))
	return since, busy != 0 && now.Sub(since) > limit
}

func (s *Server) info() reports.Info {
	h := s.health()
	in := s.in.Info()
	in.Status = h.Status
	if f := s.front; f != nil {
		in.Sandbox = f.box
	}
	in.Memory = s.memory()
	var model, draft []runtime.DeviceMemory
	if m := s.model.Load(); m != nil {
		model, draft = m.Caps.Placed, s.draft.Placed()
	}
	in.Devices = opening.Devices(s.cfg.Backends.Devices, model, draft)
	in.Live.Requests = h.Requests
	if l := s.loop.Load(); l != nil {
		m := s.model.Load()
		in.Model = m.Describe()
		in.Draft = l.model.draft.Info()
		in.Config.Speculate, in.Config.NoHead = s.cfg.SpeculationLimit(), s.noHead
		if in.Config.NoSpeculation = m.NoSpeculation(); in.Config.NoSpeculation != "" {
			in.Config.Speculate = 0
		}
		in.Capabilities, in.Config.Context = &m.Caps, s.contextNote
		in.Threads, in.Power = l.cpu.View(), s.power.View()
		st := s.metrics.Scheduler()
		in.Live.Sequences = st.Prefilling + st.Decoding
		in.Live.LiveCells, in.Live.FreeCells = st.LiveCells, st.FreeCells+st.PoolCells
		in.Live.Resident = l.state.resident.Load()
		if p := l.state.prices.Load(); p != nil {
			in.Prices = *p
		}
		if l.device != nil {
			in.Lease = l.device.Info(s.metrics)
		}
		if c := st.Cost; c.Steps > 0 {
			in.Bandwidth = account.Bandwidth(s.metrics)
			in.CostModel = &reports.CostModel{A: c.A, B: c.B, C: c.C, D: c.D, E: c.E, Samples: c.Steps, Error: c.Error}
		}
	}
	return in
}

// memory returns the memory of the process in bytes: the model's weights (mapped), the copies repacked by the engine,
// the KV cells, all of the draft model, the Go heap, and the resident set.
func (s *Server) memory() reports.InfoMemory {
	m := entry.Memory()
	if md := s.model.Load(); md != nil {
		m.Weights, m.Repacked = int64(md.Info.Bytes), int64(md.Info.RepackedBytes)
		m.KV = int64(md.Info.KVBytesPerToken) * int64(md.Caps.ContextTokens)
	}
	if l := s.loop.Load(); l != nil {
		m.Draft = l.model.draft.Bytes()
	}
	return m
}
