package metrics

import "time"

// Names that begin with meridian_ are those of meridian-core's telemetry, in Prometheus's form: dots are
// underscores, counters end in _total, and nanoseconds are seconds.

// declarePromise lists what tells whether the latency promise holds, and what the cost model believes.
func (m *Metrics) declarePromise(step, sample, sched string) {
	m.counter("slo_violations_ttft_total", "uma_slo_violations_ttft_total", "requests",
		"Requests whose first token came later than their slo.target_ttft_ms", sample, &m.SLOViolationsTTFT)
	m.counter("slo_violations_tbt_total", "uma_slo_violations_tbt_total", "tokens",
		"Tokens of answers that missed their ITL target (slo.target_tbt_ms, or --itl-target-ms)", sample,
		&m.SLOViolationsITL)
	m.counter("slo_violations_ttot_total", "uma_slo_violations_ttot_total", "requests",
		"Requests whose answer began later than their slo.target_ttot_ms after the end of the thought", sample,
		&m.SLOViolationsTTOT)
	m.gauge("ttft_at_risk", "uma_requests_ttft_at_risk", "requests", "Requests before their first token that have "+
		"missed their TTFT target, or will by the cost model", sched, &m.ttftAtRisk)
	m.value("itl_target_ms", "uma_itl_target_seconds", "ms", "The tightest ITL target of the running requests; 0 = "+
		"none", sched, func() float64 { return ms(time.Duration(m.itlTarget.Value())) }).scale = 1e-3
	m.gauge("itl_target_infeasible", "uma_itl_target_infeasible", "0, 1", "1: a step with answers only takes longer "+
		"than that target", sched, &m.infeasible)
	const guard = "Effect of the ITL target on prompts: no answer runs (open), prompt chunks are cut (trim), prompts " +
		"are skipped (hold); 1 for the current state"
	m.vector("guard", "uma_guard_state", "state", gauge, "0, 1", guard, sched, guardNames, func(i int) float64 {
		if int(m.guard.Value()) == i {
			return 1
		}
		return 0
	})
	m.counter("think_held_total", "uma_think_rows_held_total", "rows", "Thinking tokens skipped to protect the ITL "+
		"target", sched, &m.thinkHeld)
	m.declareLimited(sched)
	m.short("schedule_us", "meridian_schedule_batch_duration_seconds", "Time that the scheduler takes to plan a step",
		step, &m.schedTime)
	const batch = "Rows of a decoded batch, by phase; steps without such rows are not counted"
	m.sizes("batch_think", "meridian_scheduler_batch_size", 256, batch, step, &m.decodedThink).label = `phase="think"`
	m.sizes("batch_output", "meridian_scheduler_batch_size", 256, batch, step,
		&m.decodedOutput).label = `phase="output"`
	m.durations("predicted_ms", "uma_predicted_step_seconds", "Prediction of the cost model for a decode; compare "+
		"with decode_ms", step, &m.predictedMs)
	const cost = "Coefficient of the cost model: time that one of these adds to a step"
	for _, c := range []struct {
		json, term string
		g          *floatGauge
	}{
		{"cost_step_ms", "step", &m.costA}, {"cost_prompt_token_ms", "prompt_token", &m.costB},
		{"cost_answer_row_ms", "answer_row", &m.costC}, {"cost_attended_cell_ms", "attended_cell", &m.costD},
		{"cost_read_cell_ms", "read_cell", &m.costE},
	} {
		d := m.value(c.json, "uma_cost_model_seconds", "ms", cost, sched, c.g.value)
		d.label, d.scale, d.exact = `term="`+c.term+`"`, 1e-3, true
	}
	m.value("cost_error", "uma_cost_model_error_ratio", "0…", "Moving average of |predicted − took| / took", sched,
		m.costError.value).exact = true
	m.value("cost_margin", "uma_cost_model_margin_ratio", "1…", "95th percentile of took / predicted", sched,
		m.costRatio.value).exact = true
	m.counter("cost_steps_total", "uma_cost_model_steps_total", "steps", "Steps from which the cost model has "+
		"learned, with those of earlier runs", sched, &m.costSteps)
}

// declareThinking lists what the phase router, the probe and the forcing do.
func (m *Metrics) declareThinking(step, sample, finish string) {
	m.sizes("think_tokens", "meridian_think_tokens_per_request", 1<<20, "Thinking tokens of a finished request that "+
		"thought", finish, &m.ThinkTokens)
	m.durations("think_ms", "uma_think_seconds", "Time from opening to closing tag of a request that thought", finish,
		&m.ThinkTime)
	m.labelled("think_ended_total", "uma_think_ended_total", "ended", "requests",
		"Requests that thought, by how the thinking ended", finish, &m.ThinkEnds)
	m.total("force_triggered_total", "meridian_budget_force_triggered_total", "closes",
		"Thoughts that the server ended", sample, func() float64 { return float64(m.ForceReasons.total()) })
	m.labelled("force_reason_total", "meridian_budget_force_reason_total", "reason", "closes",
		"Thoughts that the server ended, by reason", sample, &m.ForceReasons)
	m.durations("force_close_ms", "uma_force_close_seconds", "Time from the decision to end a thought to its closing "+
		"tag", sample, &m.ForceLatency)
	m.short("probe_us", "uma_probe_seconds", "Time to read the entropy of one row of logits", step, &m.probeTime)
	m.counter("thought_ingests_total", "uma_thought_ingests_total", "thoughts", "Finished thoughts of preempted "+
		"requests that were copied back into the KV cache (--think-evict offload)", step, &m.ThoughtIngests)
	m.counter("eat_probes_total", "uma_eat_probes_total", "probes", "EAT probes: decoded forks that test whether the "+
		"answer has converged", finish, &m.eatProbes)
	const signals = ", of a thought in which it was measured (early_exit, watch_signals)"
	m.sizes("think_probes", "uma_think_probes", 1<<20, "EAT probes"+signals, finish, &m.thinkProbes).unit = "probes"
	for _, h := range []struct {
		json, prom, unit, help string
		per                    float64
		h                      *Sizes
	}{
		{"eat_entropy_mnats", "uma_eat_entropy_nats", "1/1000 nat; nats", "Entropy of the newest EAT probe", 1e-3,
			&m.eatEntropy},
		{"eat_mean_mnats", "uma_eat_mean_nats", "1/1000 nat; nats", "Running mean of EAT", 1e-3, &m.eatMean},
		{"eat_variance_unats2", "uma_eat_variance_nats2", "1e-6 nat²; nat²", "Running variance of EAT", 1e-6,
			&m.eatVariance},
		{"rpdi_index_milli", "uma_rpdi_index_ratio", "1/1000; 1", "RPDI's ratio", 1e-3, &m.rpdiIndex},
	} {
		d := m.sizes(h.json, h.prom, 1<<20, h.help+" at the end"+signals, finish, h.h)
		d.unit, d.scale = h.unit, h.per
	}
	m.labelled("think_signals_total", "uma_think_signals_total", "signal", "requests",
		"Thoughts in which a signal was measured, by the signal that asked first for the end of the thought, "+
			"whether it "+
			"might act or not; none: no signal did", finish, &m.ThinkSignals)
	m.counter("probe_dropped_total", "uma_probe_dropped_total", "rows", "Rows and probes whose entropy was not finite",
		finish, &m.probeDropped)
	m.counter("probe_fallbacks_total", "uma_probe_fallbacks_total", "requests",
		"Requests whose rows could not be probed; only their tokens are counted", sample, &m.ProbeFallbacks)
	m.counter("vocab_fallback_total", "meridian_vocab_fallback_total", "requests",
		"Requests of a model whose thinking tags are several tokens long", "at arrival", &m.VocabFallbacks)
	m.gauge("tracked_requests", "meridian_phase_router_tracked_requests", "requests",
		"Requests that the phase router tracks", step, &m.TrackedRequests)
	m.counter("reaped_total", "uma_phase_router_reaped_total", "requests", "Requests that the phase router dropped "+
		"because of their age; a defect when above 0", step, &m.Reaped)
}

// declareForms lists what holding answers to a grammar costs and saves.
func (m *Metrics) declareForms(sample string) {
	const intake = "at arrival"
	m.durations("grammar_compile_ms", "uma_grammar_compile_seconds", "Time to compile the grammar of an answer "+
		"(schema, regular expression, choice, grammar or tool calls) that was not cached", intake,
		&m.GrammarCompile)
	m.gauge("requests_compiling", "uma_requests_compiling", "requests", "Requests that wait for the grammar of their "+
		"answer to be compiled", intake, &m.GrammarCompiling)
	m.counter("grammar_refused_total", "uma_grammar_refused_total", "requests",
		"Requests refused because the grammar of their answer cannot be enforced, is too large, or exceeds the "+
			"user's compilation time", intake, &m.GrammarRefused)
	m.short("grammar_mask_us", "uma_grammar_mask_seconds", "Time to compute the mask of one token that was not "+
		"cached; computed during the decode", sample, &m.GrammarMask)
	m.counter("grammar_forced_tokens_total", "uma_grammar_forced_tokens_total", "tokens",
		"Tokens generated without a row, because the grammar of the answer allows no other", sample, &m.GrammarForced)
}

// declareKV lists what the ledger, the prefix tree and the tiers hold and do.
func (m *Metrics) declareKV(sched, scrape string) {
	const start = "decode loop, when a request starts"
	perTier := func(counters *[NumTiers]Counter) func(int) float64 {
		return func(i int) float64 { return float64(counters[i].Value()) }
	}
	m.counter("kv_lookups_total", "uma_kv_lookups_total", "requests", "Cache lookups of prompts", start, &m.lookups)
	m.vector("kv_hits_total", "uma_kv_hits_total", "tier", counter, "requests",
		"Prompts with a cached part, by the slowest tier of that part", start, tierNames, perTier(&m.hits))
	m.vector("kv_cached_tokens_total", "uma_kv_cached_tokens_total", "tier", counter, "tokens",
		"Prompt tokens served from the cache, by tier", start, tierNames, perTier(&m.hitTokens))
	m.value("kv_hit_ratio", "uma_kv_hit_ratio", "0…1", "kv_hits_total of all tiers / kv_lookups_total", scrape,
		func() float64 {
			hits := 0.0
			for i := range m.hits {
				hits += float64(m.hits[i].Value())
			}
			return hits / max(float64(m.lookups.Value()), 1)
		})
	m.counter("adapter_requests_total", "uma_adapter_requests_total", "requests", "Requests with LoRA adapters",
		"at arrival", &m.AdapterRequests)
	m.counter("adapter_changes_total", "uma_adapter_changes_total", "changes", "LoRA adapters that requests have "+
		"loaded and unloaded", "after the change", &m.AdapterChanges)
	m.counter("adapter_passes_total", "uma_adapter_passes_total", "passes", "Passes over the weights beyond the first "+
		"of a step, because its requests had different LoRA adapters", sched, &m.AdapterPasses)
	m.labelled("kv_misses_total", "uma_kv_misses_total", "reason", "requests", "Prompts not fully cached, by reason",
		start, &m.CacheMisses)
	m.counter("kv_joins_total", "uma_kv_joins_total", "requests", "Requests that waited for a prefix that another "+
		"request was computing", sched, &m.kv.joins)
	m.gauge("kv_prefixes", "uma_kv_prefixes", "prefixes", "Cached prefixes on the device", sched, &m.kv.prefixes)
	m.gauge("kv_sequences", "uma_kv_sequences", "sequences", "Sequence ids in use", sched, &m.kv.sequences)
	m.value("kv_used_bytes", "meridian_block_manager_used_bytes", "bytes", "KV blocks in use, each counted once", sched,
		func() float64 {
			n := int64(0)
			for i := range m.kv.blockBytes {
				n += m.kv.blockBytes[i].Value()
			}
			return float64(n)
		}).whole = true
	m.vector("kv_block_bytes", "uma_kv_block_bytes", "tier", gauge, "bytes", "KV blocks in use, by class: the order "+
		"of eviction", sched, blockTiers, func(i int) float64 {
		return float64(m.kv.blockBytes[i].Value())
	})
	m.vector("kv_block_evictions_total", "meridian_block_manager_evictions_total", "tier,reason", counter, "blocks",
		"KV blocks taken from their owner, by tier and reason", sched, evictionLabels, func(i int) float64 {
			return float64(m.kv.evicted[i].Value())
		})
	m.counter("output_critical_eviction", "meridian_output_critical_eviction_total", "events",
		"Preemptions and evictions that took KV blocks of running answers for other requests; alert on it. Their "+
			"blocks are in kv_block_evictions_total", sched, &m.kv.outputCritical)
	m.counter("output_critical_avoidable", "uma_output_critical_avoidable_total", "blocks",
		"Blocks of output_critical_eviction: evicted although a cached prefix or a request without an answer had "+
			"blocks; a defect when above 0", sched, &m.kv.avoidable)
	for _, t := range []struct {
		json, prom string
		first      Tier // of tiers
		tiers      []string
		kind       kind
		unit, help string
		get        func(TierStats) float64
	}{
		{"kv_tier_bytes", "uma_kv_tier_bytes", Device, sizedTiers, gauge, "bytes",
			"Bytes in each tier; device: cached prefixes", func(t TierStats) float64 { return float64(t.Bytes) }},
		{"kv_tier_cap_bytes", "uma_kv_tier_capacity_bytes", Device, sizedTiers, gauge, "bytes",
			"Capacity of each tier, device: of the KV pool; 0 = unlimited, or no such tier",
			func(t TierStats) float64 { return float64(t.CapBytes) }},
		{"kv_tier_entries", "uma_kv_tier_entries", Device, sizedTiers, gauge, "entries",
			"Prefixes, or parts of them, in each tier; disk: embeddings of images and sounds, too",
			func(t TierStats) float64 { return float64(t.Entries) }},
		{"kv_tier_evictions_total", "uma_kv_tier_evictions_total", Device, sizedTiers, counter, "entries",
			"Entries evicted from a tier for lack of room", func(t TierStats) float64 { return float64(t.Evictions) }},
		{"kv_pages_in_total", "uma_kv_pages_in_total", Host, outerTiers, counter, "tokens",
			"Tokens restored from each tier", func(t TierStats) float64 { return float64(t.PagesIn) }},
		{"kv_pages_out_total", "uma_kv_pages_out_total", Host, outerTiers, counter, "tokens",
			"Tokens stored in each tier", func(t TierStats) float64 { return float64(t.PagesOut) }},
		{"kv_tier_errors_total", "uma_kv_tier_errors_total", Host, outerTiers, counter, "operations",
			"Reads and writes of a tier that failed", func(t TierStats) float64 { return float64(t.Errors) }},
	} {
		m.vector(t.json, t.prom, "tier", t.kind, t.unit, t.help, scrape, t.tiers,
			func(i int) float64 { return t.get(m.tierNow(t.first + Tier(i))) })
	}
	for i := Host; i < NumTiers; i++ {
		name := tierNames[i]
		m.durations("kv_restore_"+name+"_ms", "uma_kv_restore_seconds", "Time of a restore of cached cells, by tier",
			"decode loop, at each restore", &m.restores[i]).label = `tier="` + name + `"`
	}
	m.counter("kv_read_ahead_total", "uma_kv_read_ahead_total", "restores", "Restores that began to read while their "+
		"request was queued", scrape, &m.ReadAheads)
	m.vector("kv_priced_total", "uma_kv_priced_total", "tier,way", counter, "decisions",
		"Decisions by predicted time: stored cells restored or computed again, evicted ones copied or discarded",
		"decode loop, at each decision", priceLabels, func(i int) float64 { return float64(m.kv.priced[i].Value()) })
	m.total("kv_snapshots_total", "uma_kv_snapshots_total", "snapshots", "Snapshots taken", scrape,
		func() float64 { return float64(m.storeNow().Snapshots) })
	m.total("kv_snapshots_dropped_total", "uma_kv_snapshots_dropped_total", "snapshots",
		"Snapshots not written for lack of room or time", scrape, func() float64 { return float64(m.storeNow().Drops) })
	m.total("kv_quarantined_total", "uma_kv_quarantined_total", "files", "Snapshot files that failed verification "+
		"and were quarantined", scrape, func() float64 { return float64(m.storeNow().Quarantined) })
	one := func(get func(*FabricStats) float64) func(int) float64 {
		return func(int) float64 { f := m.fabricNow(); return get(&f) }
	}
	m.vectorOf("disagg_blocks_offloaded_total", "meridian_disagg_blocks_offloaded_total", "fabric", counter, "blocks",
		"KV blocks pushed to the fabric", scrape, m.fabricLabels,
		one(func(f *FabricStats) float64 { return float64(f.Offloaded) }))
	m.vectorOf("disagg_blocks_ingested_total", "meridian_disagg_blocks_ingested_total", "fabric", counter, "blocks",
		"KV blocks pulled from the fabric", scrape, m.fabricLabels,
		one(func(f *FabricStats) float64 { return float64(f.Ingested) }))
	tiers := func() []string { return frameTiers[:] }
	m.vectorOf("disagg_tier_offloaded_total", "uma_disagg_tier_offloaded_blocks_total", "tier", counter, "blocks",
		"KV blocks pushed to the fabric, by the tier on their frames; prompts travel as think_complete", scrape, tiers,
		func(i int) float64 { return float64(m.fabricNow().OffloadedTier[i]) })
	m.vectorOf("disagg_tier_ingested_total", "uma_disagg_tier_ingested_blocks_total", "tier", counter, "blocks",
		"KV blocks pulled from the fabric, by the tier on their frames", scrape, tiers,
		func(i int) float64 { return float64(m.fabricNow().IngestedTier[i]) })
	m.vectorOf("disagg_errors_total", "meridian_disagg_errors_total", "reason", counter, "operations",
		"Failed operations of the fabric, by reason; each costs a cache miss", scrape, m.fabricReasons,
		func(i int) float64 {
			if e := m.fabricNow().Errors; i < len(e) {
				return float64(e[i])
			}
			return 0
		})
	m.vectorOf("disagg_pushes_retried_total", "uma_disagg_pushes_retried_total", "fabric", counter, "pushes",
		"Attempts of pushes to the fabric after the first, which failed", scrape, m.fabricLabels,
		one(func(f *FabricStats) float64 { return float64(f.Retried) }))
	m.vectorOf("disagg_pushed_again_total", "uma_disagg_pushed_again_total", "fabric", counter, "pushes",
		"Pushes of cached cells that the fabric lacked: lost, expired, or of an earlier process", scrape,
		m.fabricLabels, one(func(f *FabricStats) float64 { return float64(f.Again) }))
	m.vectorOf("disagg_renewed_total", "uma_disagg_renewed_total", "fabric", counter, "values",
		"Values of the fabric whose time to live was renewed, because a request used them", scrape, m.fabricLabels,
		one(func(f *FabricStats) float64 { return float64(f.Renewed) }))
	m.vectorOf("disagg_queued", "uma_disagg_queued", "fabric", gauge, "operations",
		"Operations of the fabric that are queued or running", scrape, m.fabricLabels,
		one(func(f *FabricStats) float64 { return float64(f.Queued) }))
	m.vectorOf("disagg_circuit_open", "uma_disagg_circuit_open", "fabric", gauge, "0, 1",
		"1: the fabric failed recently and is not used", scrape, m.fabricLabels, one(func(f *FabricStats) float64 {
			if f.CircuitOpen {
				return 1
			}
			return 0
		}))
}
