package metrics

import "time"

// Turns counts the turns of an engine process on the devices that it shares with others.
type Turns struct {
	Grants, Contended uint64
	Held              time.Duration
	Faults            [5]uint64 // in the order of deviceFaults
}

// deviceFaults are the values of the label reason of uma_device_lease_faults_total.
var deviceFaults = []string{"hold_timeout", "wait_timeout", "skipped", "lost", "repaired"}

// BindTurns sets the source of the turns' counts, which must be safe from any goroutine.
func (m *Metrics) BindTurns(f func() Turns) { m.turns.Store(&f) }

func (m *Metrics) turnsNow() Turns {
	if f := m.turns.Load(); f != nil {
		return (*f)()
	}
	return Turns{}
}

// declareDevice declares the metrics of devices, and of the arbiter, which are 0 in a process without a front.
func (m *Metrics) declareDevice(step, scrape string) {
	const turn = "decode loop, before each decode"
	m.counter("graphs_total", "uma_graphs_total", "graphs", "Graphs that were computed, one for each --ubatch-size "+
		"tokens of a step", step, &m.Graphs)
	m.counter("graphs_reused_total", "uma_graphs_reused_total", "graphs", "Of graphs_total: needed no new graph, as "+
		"the pass before had the same shape", step, &m.GraphsReused)
	m.counter("device_graphs_total", "uma_device_graphs_total", "graphs", "Graphs of which a part was computed on a "+
		"device besides the processor, one for each --ubatch-size tokens of a step", step, &m.DeviceGraphs)
	m.counter("device_logits_bytes_total", "uma_device_logits_bytes_total", "bytes", "Logits that were copied from "+
		"the device of the output layer to the host", step, &m.DeviceLogits)
	m.counter("device_probes_total", "uma_device_probes_total", "rows", "Rows that were probed on the device of the "+
		"output layer, without a copy of their logits: those of probe forks", step, &m.DeviceProbes)
	m.short("step_overlap_us", "uma_step_overlap_seconds", "Work on a step that was done while the next one was "+
		"computed: output, metrics, reports; only where the engine computes beside the host", step, &m.Overlapped)
	m.total("device_leases_total", "uma_device_leases_total", "steps", "Steps that took the lease of their devices, "+
		"which engine processes hold in turn", scrape, func() float64 { return float64(m.turnsNow().Grants) })
	m.total("device_leases_contended_total", "uma_device_leases_contended_total", "steps", "Of device_leases_total: "+
		"waited, because another model computed", scrape, func() float64 { return float64(m.turnsNow().Contended) })
	m.total("device_held_ms_total", "uma_device_held_seconds_total", "ms", "Time for which the leases were held",
		scrape, func() float64 { return float64(m.turnsNow().Held / time.Millisecond) }).scale = 1e-3
	m.counter("device_yields_total", "uma_device_yields_total", "steps", "Steps whose prompt chunk was cut so that "+
		"answers of other models are in time", step, &m.DeviceYields)
	m.vectorOf("device_lease_faults_total", "uma_device_lease_faults_total", "reason", counter, "steps",
		"Steps without a lease, because one step of another model took longer than 2 s (hold_timeout), others were "+
			"served for 10 s (wait_timeout), or shortly after such a wait (skipped); leases that another process had "+
			"taken (lost), or that none had held (repaired)", scrape,
		func() []string { return deviceFaults }, func(i int) float64 {
			return float64(m.turnsNow().Faults[i])
		})
	m.durations("device_wait_ms", "uma_device_wait_seconds", "Time that a step waited for the lease, of steps that "+
		"waited", turn, &m.DeviceWait)
}
