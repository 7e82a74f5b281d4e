package metrics

// limitReasons are the scheduler's reasons for which a request gets fewer tokens in a step than it could use, or none,
// so that running answers meet their ITL target.
var limitReasons = [...]string{"prefill_target", "prefill_floor", "prefill_held", "prefill_late", "think_held"}

// LimitReasons returns the reasons of Scheduler.Limited, in its order.
func LimitReasons() []string { return limitReasons[:] }

// declareLimited lists how often the ITL target limits requests.
func (m *Metrics) declareLimited(sched string) {
	m.vector("itl_limited_total", "uma_itl_limited_total", "reason", counter, "times", "How often a request got fewer "+
		"tokens in a step than it could use, or none, so that running answers meet their ITL target, by reason: "+
		"prefill_target (its prompt's chunk was cut), prefill_floor (it got the smallest chunk), prefill_held (none), "+
		"prefill_late (the step with it was given up), think_held (its thinking token was skipped). "+
		"Divided by batch_calls_total: how many requests at once", sched, limitReasons[:],
		func(i int) float64 { return float64(m.limited[i].Value()) })
}

// setDecisions stores the counts of decisions by reason.
func (m *Metrics) setDecisions(s *Scheduler) {
	for i, n := range s.Guessing {
		m.guessing[i].v.Store(n)
	}
	for i, n := range s.Limited {
		m.limited[i].v.Store(n)
	}
}

// decisions reads what setDecisions stored last.
func (m *Metrics) decisions(s *Scheduler) {
	for i := range m.guessing {
		s.Guessing[i] = m.guessing[i].Value()
	}
	for i := range m.limited {
		s.Limited[i] = m.limited[i].Value()
	}
}
