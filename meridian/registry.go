package meridian

import "time"

// Registry counts the requests that are being followed. A request registers when it arrives and is reaped when it
// ends: its life is its owner's business. ReapStaleOlderThan is only the net under that: whatever it
// finds was forgotten by somebody. Owned by the decode loop.
type Registry struct {
	byID map[uint64]*Control
}

// NewRegistry is an empty one.
func NewRegistry() *Registry { return &Registry{byID: map[uint64]*Control{}} }

// Register follows c under id from now on. Registering an id twice replaces the first.
func (r *Registry) Register(id uint64, c *Control, now int64) {
	c.touched = now
	r.byID[id] = c
}

// Reap forgets id and reports whether it was known. Twice is harmless.
func (r *Registry) Reap(id uint64) bool {
	_, ok := r.byID[id]
	delete(r.byID, id)
	return ok
}

// Get is the request's control, or nil.
func (r *Registry) Get(id uint64) *Control { return r.byID[id] }

// Len is the gauge tracked_requests.
func (r *Registry) Len() int { return len(r.byID) }

// ReapStaleOlderThan forgets the requests that saw no token for longer than d and appends their ids to dst. now is
// the clock of Control.OnToken: only time that passed counts, not how many tokens others decoded meanwhile.
func (r *Registry) ReapStaleOlderThan(d time.Duration, now int64, dst []uint64) []uint64 {
	for id, c := range r.byID {
		if now-c.touched > int64(d) {
			delete(r.byID, id)
			dst = append(dst, id)
		}
	}
	return dst
}
