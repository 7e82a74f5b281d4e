package meridian

import "time"

// Registry counts the requests that are being followed. Its owner, the decode loop, registers a request when it arrives
// and reaps it when it ends. ReapStaleOlderThan finds requests that were never reaped: a bug if there are any.
type Registry struct {
	byID map[uint64]*Control
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{byID: map[uint64]*Control{}} }

// Register adds c under id. Registering an id twice replaces the first.
func (r *Registry) Register(id uint64, c *Control, now int64) {
	c.touched = now
	r.byID[id] = c
}

// Reap removes id and reports whether it was registered.
func (r *Registry) Reap(id uint64) bool {
	_, ok := r.byID[id]
	delete(r.byID, id)
	return ok
}

// Get returns the request's control, or nil.
func (r *Registry) Get(id uint64) *Control { return r.byID[id] }

// Len returns the number of registered requests, the gauge tracked_requests.
func (r *Registry) Len() int { return len(r.byID) }

// ReapStaleOlderThan removes the requests that had no token for longer than d and appends their ids to dst. now is a
// time on the clock of Control.OnToken.
func (r *Registry) ReapStaleOlderThan(d time.Duration, now int64, dst []uint64) []uint64 {
	for id, c := range r.byID {
		if now-c.touched > int64(d) {
			delete(r.byID, id)
			dst = append(dst, id)
		}
	}
	return dst
}
