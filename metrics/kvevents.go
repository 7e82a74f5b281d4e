package metrics

// KVEvents counts what was published with --kv-events.
type KVEvents struct {
	Subscribers     int
	Batches         uint64
	Dropped         uint64 // batches that a subscriber lost because it did not read
	Stored, Removed uint64 // blocks
	Blocks          int    // that subscribers know now
}

// BindKVEvents sets the source of the counts, which must be safe from any goroutine.
func (m *Metrics) BindKVEvents(f func() KVEvents) { m.kvEvents.Store(&f) }

func (m *Metrics) kvEventsNow() KVEvents {
	if f := m.kvEvents.Load(); f != nil {
		return (*f)()
	}
	return KVEvents{}
}

// declareKVEvents declares the metrics of --kv-events. All are 0 without it; behind a front they are the front's.
func (m *Metrics) declareKVEvents(scrape string) {
	count := func(json, name, unit, help string, f func(*KVEvents) float64) {
		m.total(json, name, unit, help, scrape, func() float64 { e := m.kvEventsNow(); return f(&e) })
	}
	count("kv_events_batches_total", "uma_kv_events_batches_total", "batches", "Batches of KV events (--kv-events)",
		func(e *KVEvents) float64 { return float64(e.Batches) })
	count("kv_events_dropped_total", "uma_kv_events_dropped_total", "batches", "Batches that a subscriber lost "+
		"because it did not read; it can ask for them at the replay socket",
		func(e *KVEvents) float64 { return float64(e.Dropped) })
	count("kv_events_stored_total", "uma_kv_events_stored_blocks_total", "blocks", "Blocks published as stored, in "+
		"each tier", func(e *KVEvents) float64 { return float64(e.Stored) })
	count("kv_events_removed_total", "uma_kv_events_removed_blocks_total", "blocks", "Blocks published as removed",
		func(e *KVEvents) float64 { return float64(e.Removed) })
	m.value("kv_events_subscribers", "uma_kv_events_subscribers", "connections", "Connections that read KV events or "+
		"replays", scrape, func() float64 { return float64(m.kvEventsNow().Subscribers) })
	m.value("kv_events_blocks", "uma_kv_events_blocks", "blocks", "Blocks that subscribers know", scrape,
		func() float64 { return float64(m.kvEventsNow().Blocks) })
}

// kvEventKeys are the keys of the JSON that a front has values for.
var kvEventKeys = []string{"kv_events_batches_total", "kv_events_dropped_total", "kv_events_stored_total",
	"kv_events_removed_total", "kv_events_subscribers", "kv_events_blocks"}
