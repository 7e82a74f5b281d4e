package metrics

import (
	"sync/atomic"
	"time"
)

// Metrics of the KV cache. The decode loop owns the block ledger and the prefix tree and stores their numbers with
// SetKV after each step. The snapshot cache and the fabric have locks and are read at a scrape (BindStore, BindFabric).

// Tier is a place of cached cells.
type Tier uint8

const (
	Device Tier = iota
	Host
	Disk
	Fabric

	NumTiers
)

var tierNames = []string{"device", "host", "disk", "fabric"}

// sizedTiers have sizes that this process knows; the store behind a fabric has its own. outerTiers copy cells in and
// out; the device tier shares them in place.
var (
	sizedTiers = tierNames[:Fabric]
	outerTiers = tierNames[Host:]
)

// Block tiers and reasons of KV.Evicted, in meridian's order.
var (
	blockTiers     = []string{"think_complete", "think_active", "output_critical", "prefix"}
	evictReasons   = []string{"pressure", "preempt", "dropped"}
	evictionLabels = product(blockTiers, evictReasons)
	// priceLabels are the decisions about cells outside the pool: sched's ways, of which only memory is copied to.
	priceLabels = append(product(outerTiers, []string{"restore", "trial", "compute"}), "host/copy", "host/discard")
)

// KV are the ledger's and the prefix tree's numbers after a step.
type KV struct {
	BlockBytes              [4]int64     // by block tier, each block once
	Evicted                 [4][3]uint64 // blocks, by block tier and reason
	OutputCriticalEvictions uint64       // events in which blocks of answers were taken for other requests
	OutputCriticalAvoidable uint64       // blocks of them: while a lower tier had evictable blocks
	Joins                   uint64       // requests that waited for another's prefix instead of computing it
	Prefixes                int          // cached now
	Sequences               int          // ids in use
	Parked                  int          // preempted requests whose cells were copied out
	PrefixEvictions         uint64       // cached prefixes that were evicted
}

// kvGauges is KV in atomics.
type kvGauges struct {
	blockBytes                  [4]Gauge
	evicted                     [4 * 3]Counter
	outputCritical, joins       Counter
	avoidable, prefixEvictions  Counter
	prefixes, sequences, parked Gauge
	priced                      [3*3 + 2]Counter // by priceLabels
}

// SetKV stores the ledger's numbers. One goroutine.
func (m *Metrics) SetKV(k KV) {
	g := &m.kv
	for i, b := range k.BlockBytes {
		g.blockBytes[i].Set(b)
		for j, n := range k.Evicted[i] {
			g.evicted[i*len(evictReasons)+j].v.Store(n)
		}
	}
	g.outputCritical.v.Store(k.OutputCriticalEvictions)
	g.avoidable.v.Store(k.OutputCriticalAvoidable)
	g.joins.v.Store(k.Joins)
	g.prefixEvictions.v.Store(k.PrefixEvictions)
	g.prefixes.Set(int64(k.Prefixes))
	g.sequences.Set(int64(k.Sequences))
	g.parked.Set(int64(k.Parked))
}

// Lookup counts a look-up of a prompt: cached tokens were found, the slowest of them in tier. CacheMisses counts misses
// by reason.
func (m *Metrics) Lookup(tier Tier, cached int) {
	m.lookups.Inc()
	if cached > 0 {
		m.hits[tier].Inc()
		m.hitTokens[tier].Add(uint64(cached))
	}
}

// Restored counts a restore from a tier. took is the time from the request to the last cell.
func (m *Metrics) Restored(tier Tier, d time.Duration) { m.restores[tier].Observe(d) }

// Priced counts a decision about cells that tier has or may get; way is price.Way. One goroutine.
func (m *Metrics) Priced(tier Tier, way int) {
	i := 3*int(tier-Host) + way - 1
	if way > 3 {
		i = 3*3 + way - 4
	}
	m.kv.priced[i].Inc()
}

// TierStats are one tier's size, and its counters since the start.
type TierStats struct {
	Bytes, CapBytes           int64
	Entries                   int
	Evictions                 uint64
	PagesIn, PagesOut, Errors uint64 // tokens restored from here; tokens stored here; operations that failed
}

// Store are the snapshot cache's numbers, by tier.
type Store struct {
	Tiers       [NumTiers]TierStats
	Snapshots   uint64 // taken
	Drops       uint64 // not written: queue full, disk full or failing
	Quarantined uint64 // damaged files
}

// BindStore sets the source of the tiers' numbers, which must be fast and safe from any goroutine.
func (m *Metrics) BindStore(f func() Store) { m.store.Store(&f) }

type storeReading struct {
	Store
	at time.Time
}

// storeNow reads the store once per scrape.
func (m *Metrics) storeNow() *Store {
	f := m.store.Load()
	if f == nil {
		return &noStore
	}
	now := time.Now()
	if r := m.storeRead.Load(); r != nil && now.Sub(r.at) < 100*time.Millisecond {
		return &r.Store
	}
	r := &storeReading{(*f)(), now}
	m.storeRead.Store(r)
	return &r.Store
}

var noStore Store

// deviceNow returns the sizes of the cached prefixes in the KV pool, which no store reports.
func (m *Metrics) deviceNow() TierStats {
	g := &m.kv
	return TierStats{Bytes: g.blockBytes[len(blockTiers)-1].Value(), CapBytes: m.memoryNow().KV,
		Entries: int(g.prefixes.Value()), Evictions: g.prefixEvictions.Value()}
}

// tierNow returns the numbers of a tier.
func (m *Metrics) tierNow(t Tier) TierStats {
	if t == Device {
		return m.deviceNow()
	}
	return m.storeNow().Tiers[t]
}

// frameTiers are the tiers of MRDN frames, by their codes.
var frameTiers = [...]string{"think_complete", "think_active", "output_critical"}

// FabricStats are a fabric's numbers since the start.
type FabricStats struct {
	Offloaded, Ingested uint64 // blocks
	// The same by the tier on the frames: think_complete, think_active, output_critical.
	OffloadedTier, IngestedTier [len(frameTiers)]uint64
	Errors                      []uint64 // by the reasons given to BindFabric
	Retried, Again, Renewed     uint64   // attempts of pushes after the first, pushes of what it lacked, renewals
	Queued                      int      // operations not yet finished
	CircuitOpen                 bool     // it is not used for a while
}

// fabricSource holds the arguments of BindFabric.
type fabricSource struct {
	labels  []string // one
	reasons []string
	stats   func() FabricStats
	read    atomic.Pointer[fabricReading]
}

type fabricReading struct {
	FabricStats
	at time.Time
}

// BindFabric sets the fabric's label, the reasons of its errors, and the source of its numbers, which must be safe from
// any goroutine.
func (m *Metrics) BindFabric(name string, reasons []string, f func() FabricStats) {
	m.fabric.Store(&fabricSource{labels: []string{label(name)}, reasons: reasons, stats: f})
}

func (m *Metrics) fabricNow() FabricStats {
	s := m.fabric.Load()
	if s == nil {
		return FabricStats{}
	}
	now := time.Now()
	if r := s.read.Load(); r != nil && now.Sub(r.at) < 100*time.Millisecond {
		return r.FabricStats
	}
	r := &fabricReading{s.stats(), now}
	s.read.Store(r)
	return r.FabricStats
}

func (m *Metrics) fabricLabels() []string {
	if s := m.fabric.Load(); s != nil {
		return s.labels
	}
	return nil
}

func (m *Metrics) fabricReasons() []string {
	if s := m.fabric.Load(); s != nil {
		return s.reasons
	}
	return nil
}

// product returns every pair of labels, "a/b", b changing fastest.
func product(a, b []string) (out []string) {
	for _, x := range a {
		for _, y := range b {
			out = append(out, x+"/"+y)
		}
	}
	return out
}
