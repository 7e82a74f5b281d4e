package metrics

import "time"

// Processors describes the compute threads of the decode loop and the processors they run on, from a reading of the
// kernel's counters. Negative values are not known.
type Processors struct {
	Threads       int           // that steps use
	Most          int           // that they use undisturbed
	Taken         float64       // processors that other processes use
	Waited        float64       // share of the compute threads' time in which they waited for a processor
	Stalled       time.Duration // time in which a task of the machine waited for a processor
	Throttled     time.Duration // time in which a quota stopped the process
	Switches      int64         // times that a thread of the process lost its processor
	BarrierSleeps uint64        // times that a compute thread slept at a barrier
}

// Power is the energy that the machine's processors use.
type Power struct {
	Joules    float64 // since the start; negative = not known
	PerToken  float64 // J for each token sampled in the newest interval in which there were some; negative = not known
	OnBattery bool
}

type processorGauges struct {
	threads, most, onBattery                    Gauge
	taken, waited, stalled, throttled, switches floatGauge
	sleeps                                      Counter
	joules, perToken                            floatGauge
}

// SetProcessors stores a reading. One goroutine calls it.
func (m *Metrics) SetProcessors(p Processors) {
	g := &m.processors
	g.threads.Set(int64(p.Threads))
	g.most.Set(int64(p.Most))
	g.taken.set(p.Taken)
	g.waited.set(p.Waited)
	g.stalled.set(orUnknown(p.Stalled))
	g.throttled.set(orUnknown(p.Throttled))
	g.switches.set(float64(p.Switches))
	g.sleeps.v.Store(p.BarrierSleeps)
}

// orUnknown returns d in milliseconds, -1 when it is not known.
func orUnknown(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return ms(d)
}

// SetPower stores a reading. One goroutine calls it.
func (m *Metrics) SetPower(p Power) {
	g := &m.processors
	g.joules.set(p.Joules)
	g.perToken.set(p.PerToken)
	g.onBattery.Set(0)
	if p.OnBattery {
		g.onBattery.Set(1)
	}
}

// unknownProcessors is the state before the first reading.
func (m *Metrics) unknownProcessors() {
	m.SetProcessors(Processors{Taken: -1, Waited: -1, Stalled: -1, Throttled: -1, Switches: -1})
	m.SetPower(Power{Joules: -1, PerToken: -1})
}

// declareProcessors declares the metrics of compute threads, processors and energy.
func (m *Metrics) declareProcessors() {
	const read, power = "decode loop, at a reading of the kernel's counters (every 150 ms of decoding)",
		"every 10 s, where there is a meter or a battery"
	g := &m.processors
	m.gauge("compute_threads", "uma_compute_threads", "threads", "Compute threads that steps use", read, &g.threads)
	m.gauge("compute_threads_most", "uma_compute_threads_most", "threads", "Compute threads that steps use while no "+
		"other process takes a processor", read, &g.most)
	m.labelled("compute_thread_changes_total", "uma_compute_thread_changes_total", "reason", "times",
		"Changes of the number of compute threads, by why", read, &m.ThreadChanges)
	for _, d := range []struct {
		json, prom, unit, help, where string
		f                             *floatGauge
		total                         bool
		scale                         float64
	}{
		{"cpus_taken", "uma_cpus_taken", "processors", "Processors that other processes use, of those that this one " +
			"may use; null = not known", read, &g.taken, false, 0},
		{"compute_wait_share", "uma_compute_wait_ratio", "0…1", "Share of the compute threads' time in which they " +
			"waited for a processor; null = not known", read, &g.waited, false, 0},
		{"involuntary_switches_total", "uma_involuntary_switches_total", "times", "Times that a thread of the daemon " +
			"lost its processor before it gave it up; null = not known", read, &g.switches, true, 0},
		{"cpu_stalled_ms_total", "uma_cpu_stalled_seconds_total", "ms", "Time since the machine's start in which " +
			"some task waited for a processor (/proc/pressure/cpu); null = not known", read, &g.stalled, true, 1e-3},
		{"cpu_throttled_ms_total", "uma_cpu_throttled_seconds_total", "ms", "Time in which the quota of the cgroup " +
			"stopped its threads; null = it has none", read, &g.throttled, true, 1e-3},
		{"energy_joules_total", "uma_energy_joules_total", "J", "Energy that the processor packages have used since " +
			"the start, with all that runs on them; null = no meter can be read (RAPL)", power, &g.joules, true, 0},
		{"joules_per_token", "uma_joules_per_token", "J", "Energy of the processor packages for each token sampled, " +
			"over the newest 10 s with tokens; null = not known", power, &g.perToken, false, 0},
	} {
		e := m.value(d.json, d.prom, d.unit, d.help, d.where, d.f.value)
		e.null, e.exact, e.scale = true, true, d.scale
		if d.total {
			e.kind = counter
		}
	}
	m.counter("barrier_sleeps_total", "uma_barrier_sleeps_total", "times", "Times that a compute thread slept because "+
		"another one did not arrive at a barrier within 100 µs", read, &g.sleeps)
	m.gauge("on_battery", "uma_on_battery", "0, 1", "1: a battery supplies the machine", power, &g.onBattery)
}
