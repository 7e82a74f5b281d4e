package snapshot

import (
	"cmp"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

// RestoreBucketsMs are the upper bounds of the restore latency buckets, in ms. One more bucket counts longer restores.
var RestoreBucketsMs = [...]float64{0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}

// Histogram counts restores by their duration from Fetch to the Next that answers Done. Buckets are not cumulative.
type Histogram struct {
	Buckets [len(RestoreBucketsMs) + 1]uint64 `json:"buckets"`
	Count   uint64                            `json:"count"`
	SumMs   float64                           `json:"sum_ms"`
}

func (h *Histogram) observe(d time.Duration) {
	ms := float64(d) / float64(time.Millisecond)
	i := 0
	for i < len(RestoreBucketsMs) && ms > RestoreBucketsMs[i] {
		i++
	}
	h.Buckets[i]++
	h.Count++
	h.SumMs += ms
}

type counters struct {
	lookups                                 uint64
	hits, hitTokens, evictions              [tiers]uint64
	pagesIn, pagesOut                       [tiers]uint64
	snapshots, drops, quarantined, ioErrors uint64
	written, writtenRaw, writtenStored      uint64
	lastError                               string
	unknown                                 int
	returned                                uint64
	restores                                [tiers]Histogram
}

func (c *counters) restored(t Tier, d time.Duration) { c.restores[t].observe(d) }

// TierStats are one tier's numbers.
type TierStats struct {
	Bytes     int64     `json:"bytes"` // of mapped memory, or of files
	Cap       int64     `json:"cap_bytes"`
	Parts     int       `json:"parts"`
	Tokens    int64     `json:"tokens"`     // whose cells the parts of this model have
	Hits      uint64    `json:"hits"`       // look-ups whose slowest part was in this tier
	HitTokens uint64    `json:"hit_tokens"` // tokens found by them
	Evictions uint64    `json:"evictions"`
	PagesIn   uint64    `json:"pages_in"`  // tokens restored
	PagesOut  uint64    `json:"pages_out"` // tokens stored
	Restores  Histogram `json:"restores"`  // by the slowest part
}

// Stats are the cache's numbers since Open.
type Stats struct {
	Lookups     uint64    `json:"lookups"`
	Snapshots   uint64    `json:"snapshots"` // parts stored
	Returned    uint64    `json:"returned"`  // of the host tier's evictions, those for a smaller cap
	Host        TierStats `json:"host"`
	Disk        TierStats `json:"disk"`
	QueuedBytes int64     `json:"queued_bytes"` // waiting to be written; a drain waits for it
	// parts not written: queue full, too large, disk failing, or evicted from memory first
	Drops       uint64 `json:"drops"`
	Quarantined uint64 `json:"quarantined"` // damaged files
	IOErrors    uint64 `json:"io_errors"`
	Written     uint64 `json:"written"`              // files
	RawBytes    uint64 `json:"raw_bytes"`            // of them, before compression
	StoredBytes uint64 `json:"stored_bytes"`         // of them, after compression
	Unknown     int    `json:"unknown"`              // files of another format version, left alone
	Unscanned   int    `json:"unscanned"`            // files whose headers have not been read yet
	IdleBytes   int64  `json:"idle_bytes"`           // memory kept for the next parts, in addition to the host tier
	Reading     int    `json:"reads_waiting"`        // files that restores wait for
	LastError   string `json:"last_error,omitempty"` // the newest error that IOErrors or Quarantined counts
	Disabled    string `json:"disk_off,omitempty"`   // why there is no disk tier
}

// Stats returns all numbers at one time.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.mu.stats
	tier := func(t Tier, q *index.Queue) TierStats {
		return TierStats{Bytes: q.Bytes(), Cap: q.Cap, Parts: q.Len(), Tokens: q.Tokens(), Hits: s.hits[t],
			HitTokens: s.hitTokens[t], Evictions: s.evictions[t], PagesIn: s.pagesIn[t], PagesOut: s.pagesOut[t],
			Restores: s.restores[t]}
	}
	out := Stats{
		Lookups: s.lookups, Snapshots: s.snapshots, Returned: s.returned,
		Host: tier(Host, c.mu.host), Disk: tier(Disk, c.mu.disk),
		QueuedBytes: c.mu.queuedBytes, Drops: s.drops, Quarantined: s.quarantined, IOErrors: s.ioErrors,
		Written: s.written, RawBytes: s.writtenRaw, StoredBytes: s.writtenStored, Unknown: s.unknown,
		Unscanned: c.mu.unscanned, IdleBytes: c.pool.idleBytes(), Reading: len(c.mu.reads), LastError: s.lastError,
	}
	if c.diskErr != nil {
		out.Disabled = c.diskErr.Error()
	}
	return out
}

// Info describes one part, for `uma-cli kv`.
type Info struct {
	Key       Key       `json:"key"`
	Parent    Key       `json:"parent"` // the part it follows; zero at the beginning
	Namespace Namespace `json:"namespace"`
	P0        int       `json:"p0"`
	P1        int       `json:"p1"`
	Bytes     int64     `json:"bytes"`      // payload
	HostBytes int64     `json:"host_bytes"` // 0 = not in memory
	DiskBytes int64     `json:"disk_bytes"` // 0 = not on disk
	Hits      uint32    `json:"hits"`       // since it entered a tier; the larger of both tiers
	Kept      bool      `json:"kept"`       // in the protected segment, because it was used again
	Pinned    bool      `json:"pinned"`     // this part, not only one behind it
	InUse     bool      `json:"in_use"`     // this part or one behind it is pinned or being restored
	Queued    bool      `json:"queued"`     // waiting to be written
	Usable    bool      `json:"usable"`     // all parts before it are cached
	Named     bool      `json:"named"`      // no cells: PutNamed stored it as Name
	Name      Name      `json:"name"`
	Created   time.Time `json:"created"`
	Used      time.Time `json:"used"`
}

// List describes every part, by namespace, then by beginning. Parts of other models in the same directory are not
// listed; they count in Stats.Disk.
func (c *Cache) List() []Info {
	c.mu.Lock()
	out := make([]Info, 0, c.mu.index.Len())
	c.mu.index.Each(func(n *index.Node) {
		p := of(n)
		i := Info{
			Key: n.Key, Namespace: n.Namespace, P0: n.P0, P1: n.P1, Bytes: p.raw, Hits: max(n.Host.Hits, n.Disk.Hits),
			Kept: n.Host.Kept() || n.Disk.Kept(), Pinned: p.pinned != nil, InUse: p.holds > 0, Queued: p.queued,
			Usable: n.Usable(), Created: p.created, Used: p.used, Named: n.Named,
		}
		if n.Named {
			i.Name = nameOf(n.Tokens)
		}
		if n.Parent != nil {
			i.Parent = n.Parent.Key
		}
		if n.Host.In() {
			i.HostBytes = n.Host.Bytes
		}
		if n.Disk.In() {
			i.DiskBytes = n.Disk.Bytes
		}
		out = append(out, i)
	})
	c.mu.Unlock()
	slices.SortFunc(out, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.P0, b.P0), cmp.Compare(a.P1, b.P1),
			slices.Compare(a.Key[:], b.Key[:]))
	})
	return out
}

// MeanMs returns the mean in ms; 0 without restores.
func (h *Histogram) MeanMs() float64 { return h.SumMs / float64(max(h.Count, 1)) }
