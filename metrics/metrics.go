// Package metrics counts what the daemon does and shows it in two forms: one JSON line, bounded in size, and the
// Prometheus text format.
//
// Every metric is declared once, in declare.go: its names, unit, labels, meaning and where it is measured.
// docs/metrics.md is generated from that list. To add one: a field in Metrics, a line in declare.go, and `go test
// ./metrics -rewrite`.
//
// The decode loop updates metrics between two decodes, so an update is one or two atomic operations: no lock, no
// allocation, no wait. A scrape reads the same atomics and never asks the loop, so it works while a decode runs or
// hangs. Its numbers may be from two consecutive steps.
package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build identifies the build, for uma_build_info.
type Build struct {
	Version string
	Engine  string // the llama.cpp build
	Go      string // "" = the version that built this binary
}

// Model identifies the served model, for uma_model_info.
type Model struct {
	Name         string
	Architecture string
	Description  string // llama.cpp's one-line summary: size and quantization
}

// IO are the sources of the poller's counters, read at a scrape from any goroutine. A nil source reads as 0.
type IO struct {
	Accepted, Refused, Closed func() uint64 // connections
	RxBytes, TxBytes          func() uint64
	Errors                    func() uint64 // failed reads and writes
	Sessions                  func() int64  // open connections

	AcceptedBy, RefusedBy, ClosedBy, ProtocolErrors Counts
	Handshakes                                      Counts // of TLS, by outcome; none without it
}

// Counts are counters that differ in one label.
type Counts struct {
	Names []string // the label's values
	Get   func(i int) uint64
}

// Log counts the daemon's log lines since the start.
type Log struct {
	Lines, Dropped, Suppressed uint64
}

// Telemetry counts what was exported to an OpenTelemetry collector since the start.
type Telemetry struct {
	Exported, Failed              uint64 // spans delivered, and lost because the collector did not take them
	Dropped                       uint64 // requests without a trace, because the exporter was behind
	MetricExports, MetricFailures uint64
}

// Memory is the memory ledger, in bytes.
type Memory struct {
	Weights, Repacked, KV, Draft, GoHeap, RSS int64
}

// Step describes one decode of a batch.
type Step struct {
	Took        time.Duration
	Tokens      int  // in the batch
	Prefill     int  // of these, prompt tokens
	Decode      int  // of these, one for each decoding request
	Budget      int  // tokens the step was allowed
	PrefillHeld bool // the latency guard kept prefill out of it

	Think     int           // of Decode, rows of thinking requests; the others are of answers
	Predicted time.Duration // the cost model's prediction of Took; 0 = none
	Scheduled time.Duration // time that the scheduler took to plan it
	Probed    int           // logits rows whose entropy was read
	ProbeTime time.Duration // total time for them
	Traffic   Traffic
}

// Traffic is the estimated bytes that a step moves.
type Traffic struct {
	Weights, KV int64
	Copies      int64 // between the KV pool and the tiers below it
	Activations int64
}

func (t Traffic) total() int64 { return t.Weights + t.KV + t.Copies + t.Activations }

// Scheduler are the scheduler's gauges after a step, as in sched.Stats, and the counts of cells.
type Scheduler struct {
	QueuedInteractive int
	QueuedBackground  int
	Prefilling        int // paused ones included
	Decoding          int // paused ones included
	Paused            int
	LiveCells         int // held by running requests
	FreeCells         int // free
	BudgetTarget      int
	TickEWMA          time.Duration

	// live requests by class (interactive, background) and phase (queued, prefill, think, output)
	ByState [2][4]int
	// of the queued ones, those that were preempted within their thought or answer
	ParkedThink, ParkedOutput int

	PoolCells        int // held by cached prefixes only
	Guard            int // 0 open, 1 trim, 2 hold
	ITLTarget        time.Duration
	TargetInfeasible bool
	TTFTAtRisk       int
	ThinkHeld        uint64 // think rows skipped in steps, since the start
	Cost             CostModel
	Guessing         [len(guessReasons)]uint64 // decisions about guesses since the start, by reason
	Limited          [len(limitReasons)]uint64 // how often the ITL target limited a request since the start, by reason
}

// Metrics holds all metrics. Any goroutine may update the fields; one goroutine calls Step and SetScheduler.
type Metrics struct {
	Prompts         Counter // requests that reached the decode loop
	TokensGenerated Counter
	PromptTokens    Counter
	Embeddings      Counter // requests for embeddings that reached the decode loop
	EmbedInputs     Counter // texts whose embedding is complete
	EmbedTokens     Counter // their tokens
	DecodeErrors    Counter
	LateSteps       Counter
	Preemptions     Counter
	RepeatedCalls   Counter
	FinishReasons   Labels  // Declare before use; see Finished
	RejectReasons   Labels  // Declare before use; see Rejected
	Refusals        Labels  // Declare before use; requests without a place in the queue, by why
	FieldsIgnored   Counter // fields of HTTP bodies that the server does not know
	HTTPRefused     Labels  // Declare before use; requests over TCP that were refused, by why
	ToolCalls       Labels  // Declare before use; calls of tools in answers, by their syntax
	ThreadChanges   Labels  // Declare before use; changes of the number of compute threads, by why
	MalformedCalls  Labels  // Declare before use; texts that looked like calls, by why they are none

	TTFT          Durations // arrival → first token
	TTOT          Durations // closing tag of a thought → first token of the answer
	ToAnswer      Durations // arrival → first token of the answer
	InterToken    ByPhase   // token → next token of the same request
	QueueTime     Durations // arrival → first slice in a batch
	PrefillTime   Durations // first slice → first token
	DecodeTime    Durations // first token → last token
	CancelLatency Durations // cancel requested → request ended
	RequestTime   Durations // arrival → end of a finished request
	PromptSize    Sizes     // prompt tokens of a finished request
	ResponseSize  Sizes     // tokens generated by a finished request
	LiveViews     Gauge     // open live views (GET /live)

	SLOViolationsTTFT Counter // requests whose first token came after their target_ttft_ms
	SLOViolationsITL  Counter // tokens of answers later than their ITL target
	SLOViolationsTTOT Counter // requests whose answer's first token came after their target_ttot_ms

	ThinkTokens      Sizes     // of a request that thought; see ThoughtDone
	ThinkTime        Durations // from tag to tag
	ThinkEnds        Labels    // Declare before use
	ThinkSignals     Labels    // Declare before use; thoughts by the signal that asked first for their end
	ForceReasons     Labels    // Declare before use; see Forced
	ForceLatency     Durations // decision → close seen
	GrammarCompile   Durations // a grammar that was compiled
	GrammarMask      Micros    // the mask of one token, where it was not known already
	GrammarForced    Counter   // tokens taken without a row, because the grammar allows no other
	GrammarCompiling Gauge     // requests that wait for their grammar to be compiled
	GrammarRefused   Counter   // grammars that were refused: not enforceable, too large, or too many of one user

	ProbeFallbacks  Counter // requests limited to counting tokens, because their rows cannot be probed
	ThoughtIngests  Counter // finished thoughts that were copied back
	ReadAheads      Counter // restores that began while their request was queued
	VocabFallbacks  Counter // requests whose markers are several tokens long
	Reaped          Counter // requests that the phase router removed by age: a leak
	TrackedRequests Gauge   // in the phase router

	AdapterRequests, AdapterChanges          Counter // with LoRA adapters; loads and unloads by request
	AdapterPasses                            Counter // over the weights beyond the first of a step with adapters
	DeviceGraphs, DeviceLogits, DeviceProbes Counter // graphs of a device, bytes from it, rows probed on it

	DeviceWait              Durations // for the lease of the device
	Graphs, GraphsReused    Counter   // computed; as the pass before
	Overlapped              Micros    // work on a step while the next one was computed
	DeviceYields            Counter   // steps whose prompts made way for answers of other models
	CacheMisses             Labels    // Declare before use; prompts that were not entirely cached, by reason
	Recomputed, ParkedTotal Counter   // preempted requests: cells freed, to be computed again; put away
	ContextShift            Counter   // times the oldest part of a full context was removed

	drafted, accepted           [2 * 4]Counter // by phase and source
	drafts                      Counter        // guesses of one request in a step
	longest                     Gauge          // tokens of the longest finished request; the decode loop writes it
	guessing                    [len(guessReasons)]Counter
	limited                     [len(limitReasons)]Counter
	eatProbes, probeDropped     Counter
	thinkProbes, rpdiIndex      Sizes // index in thousandths
	eatEntropy, eatMean         Sizes // in 1/1000 nat
	eatVariance                 Sizes // in 1e-6 nat²
	decodedThink, decodedOutput Sizes
	probeTime, schedTime        Micros
	predictedMs                 Durations
	lastPredicted               Gauge // ns
	lookups                     Counter
	hits, hitTokens             [NumTiers]Counter
	restores                    [NumTiers]Durations
	kv                          kvGauges
	byState                     [2 * 4]Gauge
	parkedIn                    [2]Gauge // preempted within a thought, within an answer
	poolCells, guard, itlTarget Gauge
	infeasible, ttftAtRisk      Gauge
	thinkHeld, costSteps        Counter
	costA, costB, costC, costD  floatGauge // ms
	costE                       floatGauge
	costError, costRatio        floatGauge
	processors                  processorGauges

	store     atomic.Pointer[func() Store]
	storeRead atomic.Pointer[storeReading]
	fabric    atomic.Pointer[fabricSource]
	telemetry atomic.Pointer[func() Telemetry]
	bound
	kvEvents atomic.Pointer[func() KVEvents]

	steps         Counter
	prefillTokens Counter
	decodeTokens  Counter
	guardSkips    Counter
	decodeMs      Durations
	batchSize     Sizes

	lastBatch, lastBudget, lastPrefill, lastDecode Gauge
	lastTook                                       Gauge // ns
	lastStep                                       Gauge // ns after start, 0 = none yet
	targetEWMA, usedEWMA                           ewma  // tokens
	stepBytes                                      [4]Counter
	lastBytes                                      [4]Gauge
	bandwidth, bandwidthPredicted                  ewma // GB/s

	queuedInteractive, queuedBackground, prefilling, decoding, paused Gauge
	liveCells, freeCells, budgetTarget, schedEWMA                     Gauge

	start    time.Time
	build    Build
	io       atomic.Pointer[IO]
	log      atomic.Pointer[func() Log]
	memory   atomic.Pointer[func() Memory]
	ledger   atomic.Pointer[reading]
	progress atomic.Pointer[func() float64]
	model    atomic.Pointer[Model]

	decls    []*decl
	aliases  []*decl // names of llama-server, in the Prometheus format alone
	registry *prometheus.Registry
}

// New makes the metrics of one process and declares the known finish and reject reasons. The caller may declare more
// before the first use.
func New(build Build) *Metrics {
	m := &Metrics{start: time.Now(), build: build.complete()}
	m.FinishReasons.Declare("stop", "length", "cancelled", "shutdown")
	m.RejectReasons.Declare()
	m.ToolCalls.Declare()
	m.MalformedCalls.Declare()
	m.ThinkEnds.Declare("natural", "converged", "stalled", "overthinking", "hard_cap", "soft_cap", "user", "eog",
		"length")
	m.ThinkSignals.Declare("converged", "stalled", "overthinking", "none")
	m.ForceReasons.Declare("converged", "stalled", "overthinking", "hard_cap", "soft_cap", "user", "eog")
	m.CacheMisses.Declare()
	m.HTTPRefused.Declare()
	m.unknownProcessors()
	m.declare()
	m.aliases = m.llamaServer()
	m.registry = prometheus.NewRegistry()
	// Without go_memstats_…: of its names, two are one in OpenMetrics. go_memory_classes_… has the same numbers.
	golang := collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled(),
		collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsMemory))
	m.registry.MustRegister((*collector)(m), golang, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// BindIO sets the sources of the I/O metrics. It is safe at any time.
func (m *Metrics) BindIO(io IO) { m.io.Store(&io) }

// BindLog sets the source of the log's counts, which must be safe from any goroutine.
func (m *Metrics) BindLog(f func() Log) { m.log.Store(&f) }

// BindTelemetry sets the source of the exporter's counts, which must be safe from any goroutine.
func (m *Metrics) BindTelemetry(f func() Telemetry) { m.telemetry.Store(&f) }

func (m *Metrics) telemetryNow() Telemetry {
	if f := m.telemetry.Load(); f != nil {
		return (*f)()
	}
	return Telemetry{}
}

// BindMemory sets the source of the memory ledger, which must be safe from any goroutine and must not stop the world.
func (m *Metrics) BindMemory(f func() Memory) { m.memory.Store(&f) }

// reading is a copy of the memory ledger.
type reading struct {
	Memory
	at time.Time
}

// memoryNow reads the ledger once per scrape, so that its numbers are consistent.
func (m *Metrics) memoryNow() Memory {
	f := m.memory.Load()
	if f == nil {
		return Memory{}
	}
	now := time.Now()
	if r := m.ledger.Load(); r != nil && now.Sub(r.at) < 100*time.Millisecond {
		return r.Memory
	}
	r := &reading{(*f)(), now}
	m.ledger.Store(r)
	return r.Memory
}

// BindLoadProgress sets the source of the load progress, 0…1.
func (m *Metrics) BindLoadProgress(f func() float64) { m.progress.Store(&f) }

// SetModel sets the served model. It is safe at any time.
func (m *Metrics) SetModel(model Model) {
	model = Model{label(model.Name), label(model.Architecture), label(model.Description)}
	m.model.Store(&model)
}

// Step counts a decode. One goroutine.
func (m *Metrics) Step(s Step) {
	m.steps.Inc()
	m.prefillTokens.Add(uint64(s.Prefill))
	m.decodeTokens.Add(uint64(s.Decode))
	if s.PrefillHeld {
		m.guardSkips.Inc()
	}
	m.decodeMs.Observe(s.Took)
	m.batchSize.Observe(s.Tokens)
	m.lastBatch.Set(int64(s.Tokens))
	m.lastBudget.Set(int64(s.Budget))
	m.lastPrefill.Set(int64(s.Prefill))
	m.lastDecode.Set(int64(s.Decode))
	m.lastTook.Set(int64(s.Took))
	if s.Think > 0 {
		m.decodedThink.Observe(s.Think)
	}
	if s.Decode > s.Think {
		m.decodedOutput.Observe(s.Decode - s.Think)
	}
	if s.Predicted > 0 {
		m.predictedMs.Observe(s.Predicted)
		m.lastPredicted.Set(int64(s.Predicted))
	}
	if s.Scheduled > 0 {
		m.schedTime.Observe(s.Scheduled)
	}
	m.probeTime.ObserveMean(s.Probed, s.ProbeTime)
	m.moved(&s)
	m.targetEWMA.add(float64(m.target()))
	m.usedEWMA.add(float64(s.Tokens))
	m.lastStep.Set(max(int64(time.Since(m.start)), 1))
}

// moved counts a step's traffic.
func (m *Metrics) moved(s *Step) {
	t := &s.Traffic
	for i, n := range [...]int64{t.Weights, t.KV, t.Copies, t.Activations} {
		m.stepBytes[i].Add(uint64(max(n, 0)))
		m.lastBytes[i].Set(n)
	}
	if n := float64(t.total()); n > 0 && s.Took > 0 {
		m.bandwidth.add(n / float64(s.Took)) // bytes in a nanosecond: GB/s
		if s.Predicted > 0 {
			m.bandwidthPredicted.add(n / float64(s.Predicted))
		}
	}
}

// Bandwidth returns the newest step's traffic and the moving averages of GB/s: by the cost model's prediction, and as
// measured.
func (m *Metrics) Bandwidth() (t Traffic, predicted, measured float64) {
	b := &m.lastBytes
	return Traffic{b[0].Value(), b[1].Value(), b[2].Value(), b[3].Value()}, m.bandwidthPredicted.value(),
		m.bandwidth.value()
}

// target returns the scheduler's budget target, or the last step's budget if there is none yet.
func (m *Metrics) target() int64 {
	if t := m.budgetTarget.Value(); t > 0 {
		return t
	}
	return m.lastBudget.Value()
}

// Steps returns the number of decodes and the time since the last one ended; -1 before the first.
func (m *Metrics) Steps() (n uint64, age time.Duration) {
	last := m.lastStep.Value()
	if last == 0 {
		return 0, -1
	}
	return m.steps.Value(), max(time.Since(m.start)-time.Duration(last), 0)
}

// SetScheduler stores the scheduler's gauges. One goroutine.
func (m *Metrics) SetScheduler(s Scheduler) {
	m.queuedInteractive.Set(int64(s.QueuedInteractive))
	m.queuedBackground.Set(int64(s.QueuedBackground))
	m.prefilling.Set(int64(s.Prefilling))
	m.decoding.Set(int64(s.Decoding))
	m.paused.Set(int64(s.Paused))
	m.liveCells.Set(int64(s.LiveCells))
	m.freeCells.Set(int64(s.FreeCells))
	m.budgetTarget.Set(int64(s.BudgetTarget))
	m.schedEWMA.Set(int64(s.TickEWMA))
	for c := range s.ByState {
		for p, n := range s.ByState[c] {
			m.byState[c*len(phaseNames)+p].Set(int64(n))
		}
	}
	m.parkedIn[0].Set(int64(s.ParkedThink))
	m.parkedIn[1].Set(int64(s.ParkedOutput))
	m.poolCells.Set(int64(s.PoolCells))
	m.guard.Set(int64(s.Guard))
	m.itlTarget.Set(int64(s.ITLTarget))
	m.infeasible.Set(0)
	if s.TargetInfeasible {
		m.infeasible.Set(1)
	}
	m.ttftAtRisk.Set(int64(s.TTFTAtRisk))
	m.thinkHeld.v.Store(s.ThinkHeld)
	m.setDecisions(&s)
	m.costA.set(s.Cost.A)
	m.costB.set(s.Cost.B)
	m.costC.set(s.Cost.C)
	m.costD.set(s.Cost.D)
	m.costE.set(s.Cost.E)
	m.costError.set(s.Cost.Error)
	m.costRatio.set(s.Cost.Ratio)
	m.costSteps.v.Store(s.Cost.Steps)
}

// Scheduler returns the value that SetScheduler stored last.
func (m *Metrics) Scheduler() Scheduler {
	s := Scheduler{
		QueuedInteractive: int(m.queuedInteractive.Value()), QueuedBackground: int(m.queuedBackground.Value()),
		Prefilling: int(m.prefilling.Value()), Decoding: int(m.decoding.Value()), Paused: int(m.paused.Value()),
		LiveCells: int(m.liveCells.Value()), FreeCells: int(m.freeCells.Value()),
		BudgetTarget: int(m.budgetTarget.Value()), TickEWMA: time.Duration(m.schedEWMA.Value()),
		PoolCells: int(m.poolCells.Value()), Guard: int(m.guard.Value()), ITLTarget: time.Duration(m.itlTarget.Value()),
		TargetInfeasible: m.infeasible.Value() != 0, TTFTAtRisk: int(m.ttftAtRisk.Value()),
		ThinkHeld: m.thinkHeld.Value(), ParkedThink: int(m.parkedIn[0].Value()),
		ParkedOutput: int(m.parkedIn[1].Value()),
		Cost: CostModel{m.costA.value(), m.costB.value(), m.costC.value(), m.costD.value(), m.costE.value(),
			m.costError.value(), m.costRatio.value(), m.costSteps.Value()},
	}
	m.decisions(&s)
	for i := range m.byState {
		s.ByState[i/len(phaseNames)][i%len(phaseNames)] = int(m.byState[i].Value())
	}
	return s
}

// Finished counts a request that ended with an eos, by its reason.
func (m *Metrics) Finished(reason string) { m.FinishReasons.Inc(reason) }

// Rejected counts a request that was answered with an error, by its reason; not one that IO.ProtocolErrors counts.
func (m *Metrics) Rejected(reason string) { m.RejectReasons.Inc(reason) }

// rejections returns the number of requests rejected for the i-th reason, by the poller and by the others.
func (m *Metrics) rejections(i int) float64 {
	n := float64(m.RejectReasons.n[i].Value())
	if io := m.io.Load(); io != nil {
		for j, name := range io.ProtocolErrors.Names {
			if m.RejectReasons.at(name) == i {
				n += float64(io.ProtocolErrors.Get(j))
			}
		}
	}
	return n
}

// RequestDone counts a finished request: prompt tokens, generated tokens, the time from its first token to its last,
// and the time from its arrival to its end.
func (m *Metrics) RequestDone(prompt, generated int, decode, total time.Duration) {
	m.PromptTokens.Add(uint64(prompt))
	m.longest.Set(max(m.longest.Value(), int64(prompt+generated)))
	m.PromptSize.Observe(prompt)
	m.ResponseSize.Observe(generated)
	m.RequestTime.Observe(total)
	if generated > 1 {
		m.DecodeTime.Observe(decode)
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
