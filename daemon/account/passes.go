package account

import (
	"github.com/uma-serve/uma-serve/metrics"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// Passes counts what the engine says of the steps that it has computed.
type Passes struct {
	m      *metrics.Metrics
	micro  int  // tokens of a pass
	device bool // a device computes, besides the processor
	graphs runtime.GraphReuser
	seen   uint64             // reused graphs, as the engine said at the end of the newest step
	rows   runtime.RowCounter // nil: the engine probes no rows on a device
	probed runtime.ProbedRows // that m has
}

// NewPasses returns the counts of an engine.
func NewPasses(eng runtime.Engine, m *metrics.Metrics) Passes {
	caps := eng.Capabilities()
	p := Passes{m: m, micro: max(caps.MaxMicroBatch, 1), device: caps.Devices > 1}
	p.graphs, _ = eng.(runtime.GraphReuser)
	if caps.ProbesRows {
		p.rows, _ = eng.(runtime.RowCounter)
	}
	return p
}

// Count counts a step that was computed: its graphs, and what was copied of its rows, where the engine probes some of
// them on a device.
func (p *Passes) Count(plan *sched.Plan) {
	n := uint64((plan.Tokens + p.micro - 1) / p.micro)
	p.m.Graphs.Add(n)
	if p.device {
		p.m.DeviceGraphs.Add(n)
	}
	if p.graphs != nil {
		now := p.graphs.GraphsReused()
		p.m.GraphsReused.Add(min(now-min(p.seen, now), n)) // passes beside steps are not counted
		p.seen = now
	}
	if p.rows != nil {
		now := p.rows.ProbedRows()
		p.m.DeviceLogits.Add(now.Logits - p.probed.Logits)
		p.m.DeviceProbes.Add(now.Rows - p.probed.Rows)
		p.probed = now
	}
}
