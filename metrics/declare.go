package metrics

import (
	"runtime"
	"strings"
	"time"
)

// kind of a metric, in Prometheus's words.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// decl declares one metric. Exactly one of value, labels, vec, dur, micros, both, size and info is set.
type decl struct {
	json string // its key in the snapshot
	prom string // its Prometheus family; "" = only in the JSON
	// `name="value"`, where several JSON keys are one family; `name` for labels and info, `name,name` for vec
	label string
	kind  kind
	unit  string // of the JSON value; Prometheus is in base units
	help  string // its meaning, a sentence without the full stop
	where string // place of the measurement

	value  func() float64 // in the JSON's unit
	scale  float64        // factor on the value for Prometheus; 0 = 1
	whole  bool           // value is an integer
	null   bool           // a negative value is null in JSON and 0 in Prometheus
	exact  bool           // value is small: six significant digits instead of three after the point
	labels *Labels
	vec    *vec
	dur    *Durations
	micros *Micros
	both   *ByPhase // the JSON's sum of two histograms
	size   *Sizes
	top    int             // the largest bound of the JSON's buckets, in its unit
	info   func() []string // values of the label names, which also are the JSON's keys; nil = not known yet
}

// vec is a family with one or two labels whose values are known when it is read.
type vec struct {
	names func() []string // "a", or "a/b" with two labels
	get   func(i int) float64
}

// The places where metrics of connections are counted.
const (
	atPoller = "poller"
	atDoor   = "HTTP, before a request is read"
)

// declare lists every metric, in the order of the snapshot and of docs/metrics.md. Names and units of the JSON are
// fixed by the system design's metrics plan where it has them; the Prometheus names follow that project's rules.
func (m *Metrics) declare() {
	const step, sample, finish = "decode loop, after each decode", "decode loop, at each sampled token",
		"decode loop, when a request ends"
	const sched, io, scrape = "decode loop, from the scheduler after each step", atPoller, "read at the scrape"

	// Requests and tokens.
	m.counter("tokens_generated_total", "uma_tokens_generated_total", "tokens", "Tokens sampled", sample,
		&m.TokensGenerated)
	m.counter("prompts_total", "uma_prompts_total", "requests", "Requests that reached the decode loop",
		"decode loop, at arrival", &m.Prompts)
	m.counter("prompt_tokens_total", "uma_prompt_tokens_total", "tokens", "Prompt tokens of finished requests", finish,
		&m.PromptTokens)
	m.counter("embedding_requests_total", "uma_embedding_requests_total", "requests", "Of prompts_total: requests for "+
		"embeddings", "decode loop, at arrival", &m.Embeddings)
	m.counter("embedding_inputs_total", "uma_embedding_inputs_total", "texts", "Texts whose embedding is complete",
		step, &m.EmbedInputs)
	m.counter("embedding_tokens_total", "uma_embedding_tokens_total", "tokens", "Tokens of these texts", step,
		&m.EmbedTokens)
	m.labelled("requests_finished_total", "uma_requests_finished_total", "reason", "requests",
		"Requests that ended with an eos, by its reason", finish, &m.FinishReasons)
	m.vectorOf("requests_rejected_total", "uma_requests_rejected_total", "reason", counter, "requests",
		"Requests answered with an error instead: malformed, refused before they started, or failed later",
		"poller; decode loop, when a request ends", func() []string { return m.RejectReasons.values }, m.rejections)
	m.labelled("requests_refused_total", "uma_requests_refused_total", "reason", "requests",
		"Of requests_rejected_total: got no place in the queue, by the scheduler's reason; displaced: its place went "+
			"to another user, user_share: its user had its share of --max-queue plus --parallel; "+
			"class_queue_full, session_limit, "+
			"user_limit, token_limit, cell_limit: --limits", finish, &m.Refusals)
	m.labelled("tool_calls_total", "uma_tool_calls_total", "form", "calls", "Tool calls in answers, by the model's "+
		"syntax", sample, &m.ToolCalls)
	m.labelled("tool_calls_malformed_total", "uma_tool_calls_malformed_total", "reason", "calls",
		"Tool calls cut off, malformed and left as text of the answer, or for a tool of the model's own and left out, "+
			"by reason", sample, &m.MalformedCalls)
	m.counter("tool_calls_repeated_total", "uma_tool_calls_repeated_total", "requests",
		"Answers to tool_choice required that ended because the model wrote a call of the answer again", sample,
		&m.RepeatedCalls)
	m.counter("preemptions_total", "uma_preemptions_total", "requests", "Preemptions: a running request lost its "+
		"sequence and was queued again", step, &m.Preemptions)
	m.counter("recomputed_total", "uma_requests_recomputed_total", "requests", "Of preemptions_total: the cells were "+
		"discarded and are computed again", step, &m.Recomputed)
	m.counter("parked_total", "uma_preemptions_parked_total", "requests", "Of preemptions_total: the cells were "+
		"saved and are restored later", step, &m.ParkedTotal)
	m.counter("context_shifts_total", "uma_context_shifts_total", "times", "Context shifts: the oldest part of a "+
		"full context was dropped (--context-shift)", step, &m.ContextShift)

	// Steps.
	m.counter("batch_calls_total", "uma_decode_steps_total", "steps", "Decodes of a batch", step, &m.steps)
	m.counter("decode_errors_total", "uma_decode_errors_total", "steps", "Decodes that failed in the backend", step,
		&m.DecodeErrors)
	m.counter("late_steps_total", "uma_late_steps_total", "steps", "Steps of answers and prompts that were given up "+
		"so that the answers meet their ITL target: what they had computed of the prompts is computed again", step,
		&m.LateSteps)
	m.counterWith("prefill_tokens_merged_total", "uma_batch_tokens_total", `kind="prefill"`, "tokens",
		"Tokens in decoded batches, by kind: prompt tokens (prefill) or one for each answer (decode)", step,
		&m.prefillTokens)
	m.counterWith("decode_tokens_merged_total", "uma_batch_tokens_total", `kind="decode"`, "tokens",
		"Tokens in decoded batches, by kind: prompt tokens (prefill) or one for each answer (decode)", step,
		&m.decodeTokens)
	m.counter("skipped_prefill_due_to_latency_total", "uma_prefill_skipped_total", "steps",
		"Steps without prefill because of the latency guard", step, &m.guardSkips)
	m.gauge("last_batch_size", "uma_last_batch_tokens", "tokens", "Tokens in the last batch", step, &m.lastBatch)
	m.gauge("prefill_tokens_merged_last", "uma_last_batch_prefill_tokens", "tokens", "Prompt tokens in the last batch",
		step, &m.lastPrefill)
	m.gauge("decode_tokens_merged_last", "uma_last_batch_decode_tokens", "tokens", "Decode tokens in the last batch",
		step, &m.lastDecode)
	m.value("decode_ms_last", "uma_last_decode_seconds", "ms", "Duration of the last decode", step,
		func() float64 { return ms(time.Duration(m.lastTook.Value())) }).scale = 1e-3
	m.value("decode_ms_ewma", "uma_decode_ewma_seconds", "ms", "Moving average of decode durations; each step has a "+
		"weight of 1/5", sched, func() float64 { return ms(time.Duration(m.schedEWMA.Value())) }).scale = 1e-3
	m.value("predicted_ms_last", "uma_last_predicted_seconds", "ms", "Prediction of the cost model for the last decode",
		step, func() float64 { return ms(time.Duration(m.lastPredicted.Value())) }).scale = 1e-3
	d := m.value("last_step_age_ms", "uma_last_step_age_seconds", "ms", "Time since the last decode ended; null, or "+
		"0 in Prometheus, before the first", scrape, func() float64 {
		_, age := m.Steps()
		return ms(age)
	})
	d.scale, d.null = 1e-3, true
	m.value("budget_target", "uma_budget_target_tokens", "tokens", "Target of tokens per step", sched,
		func() float64 { return float64(m.target()) }).whole = true
	m.gauge("budget_used", "uma_budget_used_tokens", "tokens", "Tokens of its budget that the last step used", step,
		&m.lastBatch)
	m.value("avg_budget_target", "uma_budget_target_ewma_tokens", "tokens", "Moving average of budget_target; each "+
		"step has a weight of 1/5", step, m.targetEWMA.value)
	m.value("avg_budget_used", "uma_budget_used_ewma_tokens", "tokens", "Moving average of budget_used; each step "+
		"has a weight of 1/5", step, m.usedEWMA.value)

	kinds := []string{"weights", "kv", "copies", "activations"}
	m.vector("step_bytes_total", "uma_step_bytes_total", "kind", counter, "bytes", "Estimated bytes that steps moved: "+
		"weights, KV cells attended to and written, cells copied between the pool and the tiers below it, activations",
		step, kinds, func(i int) float64 { return float64(m.stepBytes[i].Value()) })
	m.value("bandwidth_gbps", "uma_step_bandwidth_bytes_per_second", "GB/s; bytes/s",
		"Moving average of a step's bytes by "+
			"its duration; each step has a weight of 1/5", step, m.bandwidth.value).scale = 1e9
	m.value("bandwidth_predicted_gbps", "uma_step_bandwidth_predicted_bytes_per_second", "GB/s; bytes/s",
		"The same by the "+
			"duration that the cost model predicts", step, m.bandwidthPredicted.value).scale = 1e9

	// Queues and cells.
	const queued, running = "Queued requests, by class", "Running requests, by state"
	m.value("ready_sessions", "uma_requests_ready", "requests", "Running requests that a step can advance: all "+
		"except the paused", sched, func() float64 {
		return float64(max(m.prefilling.Value()+m.decoding.Value()-m.paused.Value(), 0))
	}).whole = true
	m.gaugeWith("queued_interactive", "uma_requests_queued", `class="interactive"`, "requests", queued, sched,
		&m.queuedInteractive)
	m.gaugeWith("queued_background", "uma_requests_queued", `class="background"`, "requests", queued, sched,
		&m.queuedBackground)
	m.gaugeWith("running_prefill", "uma_requests_running", `state="prefill"`, "requests", running, sched, &m.prefilling)
	m.gaugeWith("running_decode", "uma_requests_running", `state="decode"`, "requests", running, sched, &m.decoding)
	m.gauge("running_paused", "uma_requests_paused", "requests", "Requests paused because their client does not "+
		"read; they also count as prefill or decode", sched, &m.paused)
	m.vector("requests_by_phase", "uma_requests", "class,phase", gauge, "requests", "Live requests, by class and phase",
		sched, product(classNames, phaseNames), func(i int) float64 {
			return float64(m.byState[i].Value())
		})
	const depth = "Requests in the queue of a phase: those that generate a thought (think) or an answer (output), " +
		"and the preempted ones that wait to continue it"
	phase := func(p int) func() float64 {
		return func() float64 {
			return float64(m.byState[p].Value() + m.byState[len(phaseNames)+p].Value() + m.parkedIn[p-2].Value())
		}
	}
	d = m.value("queue_depth_think", "meridian_queue_depth", "requests", depth, sched, phase(2))
	d.whole, d.label = true, `queue="think"`
	d = m.value("queue_depth_output", "meridian_queue_depth", "requests", depth, sched, phase(3))
	d.whole, d.label = true, `queue="output"`
	m.gauge("requests_parked", "uma_requests_parked", "requests", "Preempted requests whose cells are saved", sched,
		&m.kv.parked)
	const cells = "KV cells, by use: held by running requests (live), by cached prefixes alone (cached), or free"
	m.gaugeWith("kv_cells_live", "uma_kv_cells", `use="live"`, "cells", cells, sched, &m.liveCells)
	m.gaugeWith("kv_cells_free", "uma_kv_cells", `use="free"`, "cells", cells, sched, &m.freeCells)
	m.gaugeWith("kv_cells_cached", "uma_kv_cells", `use="cached"`, "cells", cells, sched, &m.poolCells)
	m.value("kv_cells_total", "uma_kv_capacity_cells", "cells", "KV cells of the pool", sched, func() float64 {
		return float64(m.liveCells.Value() + m.poolCells.Value() + m.freeCells.Value())
	}).whole = true

	m.declarePromise(step, sample, sched)
	m.declareProcessors()
	m.declareThinking(step, sample, finish)
	m.declareForms(sample)
	m.declareSpeculation(step, sched)
	m.declareKV(sched, scrape)
	m.declareDevice(step, scrape)
	m.declareImages(scrape)
	m.declareKVEvents(scrape)

	// Latencies and sizes.
	m.durations("ttft_ms", "uma_time_to_first_token_seconds", "Time from the arrival of a request to its first token",
		sample, &m.TTFT)
	m.durations("ttot_ms", "uma_time_to_first_output_token_seconds", "TTOT: time from the closing tag of a thought "+
		"to the first token of the answer", sample, &m.TTOT)
	m.durations("time_to_answer_ms", "uma_time_to_answer_seconds", "Time from the arrival of a request to the "+
		"first token of its answer, thinking included", sample, &m.ToAnswer)
	m.add(&decl{json: "inter_token_ms", kind: histogram, unit: "ms", help: "Time between two tokens of a request, " +
		"both phases", where: sample, both: &m.InterToken, top: 1024})
	const itl = "Time between two tokens of a request, by phase"
	m.durations("inter_token_think_ms", "uma_inter_token_latency_seconds", itl, sample,
		&m.InterToken.Think).label = `phase="think"`
	m.durations("inter_token_output_ms", "uma_inter_token_latency_seconds", itl, sample,
		&m.InterToken.Output).label = `phase="output"`
	m.durations("decode_ms", "uma_decode_step_seconds", "Duration of a decode", step, &m.decodeMs)
	m.durations("request_ms", "uma_request_seconds", "Time from the arrival of a request to its end, of requests "+
		"that ended with an eos", finish, &m.RequestTime)
	m.durations("request_queue_ms", "uma_request_queue_seconds", "Time from the arrival of a request to its first "+
		"prompt chunk", "decode loop, at that batch", &m.QueueTime)
	m.durations("request_prefill_ms", "uma_request_prefill_seconds", "Time from the first prompt chunk of a request "+
		"to its first token", sample, &m.PrefillTime)
	m.durations("request_decode_ms", "uma_request_decode_seconds", "Time from the first token of a request to its "+
		"last, if there are two or more", finish, &m.DecodeTime)
	m.durations("cancel_latency_ms", "uma_cancel_latency_seconds", "Time from a cancel or a disconnect to the end of "+
		"the request", finish, &m.CancelLatency)
	m.sizes("batch_size", "uma_batch_size_tokens", 2048, "Tokens in a decoded batch", step, &m.batchSize)
	m.sizes("prompt_tokens", "uma_prompt_size_tokens", 1<<20, "Prompt tokens of a finished request", finish,
		&m.PromptSize)
	m.sizes("response_tokens", "uma_response_size_tokens", 1<<20, "Tokens generated by a finished request", finish,
		&m.ResponseSize)

	// I/O.
	source := func(pick func(*IO) func() uint64) func() float64 {
		return func() float64 {
			if io := m.io.Load(); io != nil {
				if f := pick(io); f != nil {
					return float64(f())
				}
			}
			return 0
		}
	}
	sessions := func() float64 {
		if io := m.io.Load(); io != nil && io.Sessions != nil {
			return float64(io.Sessions())
		}
		return 0
	}
	m.value("sessions_active", "uma_sessions_active", "connections", "Open connections", io, sessions).whole = true
	// The plan has both spellings.
	m.value("active_sessions", "uma_sessions_active", "connections", "Open connections", io, sessions).whole = true
	m.total("accepted_total", "uma_connections_accepted_total", "connections", "Connections accepted", io,
		source(func(io *IO) func() uint64 { return io.Accepted }))
	m.total("refused_total", "uma_connections_refused_total", "connections",
		"Connections refused: too many sessions, or no descriptor left", io,
		source(func(io *IO) func() uint64 { return io.Refused }))
	m.total("closed_total", "uma_connections_closed_total", "connections", "Connections closed", io,
		source(func(io *IO) func() uint64 { return io.Closed }))
	counts := func(json, prom, label, unit, help string, pick func(*IO) Counts) {
		m.vectorOf(json, prom, label, counter, unit, help, io, func() []string {
			if io := m.io.Load(); io != nil {
				return pick(io).Names
			}
			return nil
		}, func(i int) float64 { return float64(pick(m.io.Load()).Get(i)) })
	}
	counts("accepted_by_listener", "uma_connections_accepted_by_listener_total", "listener", "connections",
		"Of accepted_total: on the Unix socket (unix), or on a TCP address of --listen",
		func(io *IO) Counts { return io.AcceptedBy })
	counts("refused_by_reason", "uma_connections_refused_by_reason_total", "reason", "connections",
		"Of refused_total: --max-sessions are open and the user has its share of them (sessions), or no descriptor "+
			"is left (descriptors), or the user id is reserved for owners of API keys (reserved_uid)",
		func(io *IO) Counts { return io.RefusedBy })
	counts("tls_handshakes_total", "uma_tls_handshakes_total", "outcome", "handshakes",
		"TLS handshakes of --listen with --tls-cert: ended well (ok), by a client that does not speak TLS (plain), "+
			"after ten seconds (timeout), by an error or a client that left (failed), because too many connections "+
			"were open (refused)",
		func(io *IO) Counts { return io.Handshakes })
	counts("closed_by_cause", "uma_connections_closed_by_cause_total", "cause", "connections",
		"Of closed_total, by cause",
		func(io *IO) Counts { return io.ClosedBy })
	counts("protocol_errors_total", "uma_protocol_errors_total", "code", "messages",
		"Of requests_rejected_total: messages that were malformed, incomplete at their deadline, or had the id of a "+
			"running request",
		func(io *IO) Counts { return io.ProtocolErrors })
	m.labelled("http_refused_total", "uma_http_requests_refused_total", "reason", "requests",
		"HTTP requests on --listen that were refused before their body was read: a foreign Host header (host), a web "+
			"page of a foreign origin (origin), a forbidden or unknown user (uid), a missing or unknown API key (key)",
		atDoor, &m.HTTPRefused)
	m.counter("http_fields_ignored_total", "uma_http_fields_ignored_total", "fields",
		"Fields of HTTP requests that the server does not know and left out (X-Uma-Ignored); a request counts each of "+
			"its first 16 once", "HTTP, when a body is read", &m.FieldsIgnored)
	m.gauge("live_views", "uma_live_views", "connections", "Open live views of the page",
		"HTTP", &m.LiveViews)
	m.total("rx_bytes_total", "uma_received_bytes_total", "bytes", "Bytes read from clients", io,
		source(func(io *IO) func() uint64 { return io.RxBytes }))
	m.total("tx_bytes_total", "uma_sent_bytes_total", "bytes", "Bytes written to clients", io,
		source(func(io *IO) func() uint64 { return io.TxBytes }))
	m.total("io_errors_total", "uma_io_errors_total", "errors", "Reads and writes that failed", io,
		source(func(io *IO) func() uint64 { return io.Errors }))

	// The process.
	logged := func(pick func(Log) uint64) func() float64 {
		return func() float64 {
			if f := m.log.Load(); f != nil {
				return float64(pick((*f)()))
			}
			return 0
		}
	}
	const log = "log writer"
	m.total("log_lines_total", "uma_log_lines_total", "lines", "Log lines written to stderr", log,
		logged(func(l Log) uint64 { return l.Lines }))
	m.total("log_dropped_total", "uma_log_lines_dropped_total", "lines", "Log lines lost because stderr was not read "+
		"or was closed", log, logged(func(l Log) uint64 { return l.Dropped }))
	m.total("log_suppressed_total", "uma_log_lines_suppressed_total", "lines",
		"Log lines suppressed as repetitions; one line per window has their number", log,
		logged(func(l Log) uint64 { return l.Suppressed }))
	const exporter = "telemetry exporter"
	m.vector("telemetry_spans_total", "uma_telemetry_spans_total", "outcome", counter, "spans",
		"Spans for the OpenTelemetry collector: delivered (exported), or lost because it did not take them (failed)",
		exporter, []string{"exported", "failed"}, func(i int) float64 {
			t := m.telemetryNow()
			return float64([]uint64{t.Exported, t.Failed}[i])
		})
	m.vector("telemetry_metric_exports_total", "uma_telemetry_metric_exports_total", "outcome", counter, "exports",
		"Exports of the metrics to the OpenTelemetry collector", exporter, []string{"exported", "failed"},
		func(i int) float64 {
			t := m.telemetryNow()
			return float64([]uint64{t.MetricExports, t.MetricFailures}[i])
		})
	m.total("telemetry_dropped_total", "uma_telemetry_dropped_total", "requests", "Requests without a trace, because "+
		"the exporter was behind", exporter, func() float64 { return float64(m.telemetryNow().Dropped) })
	memory := func(pick func(Memory) int64) func() float64 {
		return func() float64 { return float64(pick(m.memoryNow())) }
	}
	m.value("weights_bytes", "uma_weights_bytes", "bytes", "Tensor data of the model", "when the model is loaded",
		memory(func(m Memory) int64 { return m.Weights })).whole = true
	m.value("repacked_bytes", "uma_repacked_bytes", "bytes", "Weights stored a second time, repacked for the CPU "+
		"kernels, in anonymous memory; 0 in a build with the system's llama.cpp, which does not report it",
		"when the model is loaded", memory(func(m Memory) int64 { return m.Repacked })).whole = true
	m.value("kv_bytes", "uma_kv_bytes", "bytes", "The KV pool, all cells", "when the model is loaded",
		memory(func(m Memory) int64 { return m.KV })).whole = true
	m.value("draft_bytes", "uma_draft_model_bytes", "bytes", "The draft model: weights, repacked weights, KV cells",
		"when the model is loaded", memory(func(m Memory) int64 { return m.Draft })).whole = true
	m.value("go_heap_bytes", "uma_go_heap_bytes", "bytes", "Go's heap", scrape,
		memory(func(m Memory) int64 { return m.GoHeap })).whole = true
	m.value("rss_bytes", "uma_resident_memory_bytes", "bytes", "Resident memory of the process, mapped weights "+
		"included", scrape, memory(func(m Memory) int64 { return m.RSS })).whole = true
	m.value("load_progress", "uma_load_progress_ratio", "0…1", "Loaded fraction of the model", "model loader",
		func() float64 {
			if f := m.progress.Load(); f != nil {
				return (*f)()
			}
			return 0
		})
	d = m.value("uptime_ms", "uma_uptime_seconds", "ms", "Time since the process started", scrape,
		func() float64 { return ms(time.Since(m.start)) })
	d.scale = 1e-3
	m.information("build", "uma_build_info", "version,engine,go", "Version of the build; always 1", "at start",
		func() []string {
			return []string{m.build.Version, m.build.Engine, m.build.Go}
		})
	m.information("model", "uma_model_info", "name,architecture,description", "The served model; always 1, or null "+
		"and absent while it loads", "when the model is loaded", func() []string {
		if i := m.model.Load(); i != nil {
			return []string{i.Name, i.Architecture, i.Description}
		}
		return nil
	})
}

func (m *Metrics) add(d *decl) *decl {
	m.decls = append(m.decls, d)
	return d
}

func (m *Metrics) counter(json, prom, unit, help, where string, c *Counter) {
	m.counterWith(json, prom, "", unit, help, where, c)
}

func (m *Metrics) counterWith(json, prom, label, unit, help, where string, c *Counter) {
	d := m.total(json, prom, unit, help, where, func() float64 { return float64(c.Value()) })
	d.label = label
}

func (m *Metrics) total(json, prom, unit, help, where string, f func() float64) *decl {
	return m.add(&decl{json: json, prom: prom, kind: counter, unit: unit, help: help, where: where, value: f,
		whole: true})
}

func (m *Metrics) gauge(json, prom, unit, help, where string, g *Gauge) {
	m.gaugeWith(json, prom, "", unit, help, where, g)
}

func (m *Metrics) gaugeWith(json, prom, label, unit, help, where string, g *Gauge) {
	d := m.value(json, prom, unit, help, where, func() float64 { return float64(g.Value()) })
	d.label, d.whole = label, true
}

func (m *Metrics) value(json, prom, unit, help, where string, f func() float64) *decl {
	return m.add(&decl{json: json, prom: prom, kind: gauge, unit: unit, help: help, where: where, value: f})
}

func (m *Metrics) labelled(json, prom, label, unit, help, where string, l *Labels) {
	m.add(&decl{json: json, prom: prom, label: label, kind: counter, unit: unit, help: help, where: where, labels: l})
}

func (m *Metrics) durations(json, prom, help, where string, h *Durations) *decl {
	return m.add(&decl{json: json, prom: prom, kind: histogram, unit: "ms", help: help, where: where, dur: h,
		top: 1024})
}

func (m *Metrics) short(json, prom, help, where string, h *Micros) {
	m.add(&decl{json: json, prom: prom, kind: histogram, unit: "µs", help: help, where: where, micros: h, top: 1 << 20})
}

func (m *Metrics) vector(
	json, prom, labels string, k kind, unit, help, where string, names []string, get func(int) float64,
) {
	m.vectorOf(json, prom, labels, k, unit, help, where, func() []string { return names }, get)
}

func (m *Metrics) vectorOf(
	json, prom, labels string, k kind, unit, help, where string, names func() []string, get func(int) float64,
) {
	m.add(&decl{json: json, prom: prom, label: labels, kind: k, unit: unit, help: help, where: where,
		vec: &vec{names, get}})
}

func (m *Metrics) sizes(json, prom string, top int, help, where string, h *Sizes) *decl {
	return m.add(&decl{json: json, prom: prom, kind: histogram, unit: "tokens", help: help, where: where, size: h,
		top: top})
}

func (m *Metrics) information(json, prom, labels, help, where string, f func() []string) {
	m.add(&decl{json: json, prom: prom, label: labels, kind: gauge, unit: "text", help: help, where: where, info: f})
}

func (b Build) complete() Build {
	if b.Go == "" {
		b.Go = runtime.Version()
	}
	return Build{label(b.Version), label(b.Engine), label(b.Go)}
}

// maxLabel bounds a text from outside, such as a model's name, in bytes.
const maxLabel = 128

// label makes s fit to be a label's value: valid UTF-8 of bounded length.
func label(s string) string {
	if len(s) > maxLabel {
		s = s[:maxLabel]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
