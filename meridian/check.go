package meridian

import "fmt"

// check panics when the router's invariants do not hold. Tests call it after every token, and so does OnToken in builds
// with invariants.
func (r *Router) check() {
	if r.marker.m == nil && (len(r.marker.held) != 0 || r.marker.state != 0) {
		panic("meridian: bytes are held back although no marker is looked for")
	}
	if r.marker.m != nil && r.marker.m.node[r.marker.state].depth != len(r.marker.held) {
		panic(fmt.Sprintf("meridian: %d bytes are held back in a state of depth %d", len(r.marker.held),
			r.marker.m.node[r.marker.state].depth))
	}
	if r.think < 0 || r.blocks > r.maxBlocks && r.maxBlocks > 0 {
		panic(fmt.Sprintf("meridian: %d think tokens in %d blocks of %d", r.think, r.blocks, r.maxBlocks))
	}
}

// check panics when the control's invariants do not hold.
func (c *Control) check() {
	c.Router.check()
	if c.stop > c.budget {
		panic(fmt.Sprintf("meridian: the close must begin at %d, past the budget of %d", c.stop, c.budget))
	}
	if c.forced.kind != nothing && c.forced.pos >= len(c.forced.seq) {
		panic(fmt.Sprintf("meridian: token %d of a forced sequence of %d", c.forced.pos, len(c.forced.seq)))
	}
	if c.forced.kind == closing && (c.state < closeForced || c.phase != ThinkDecode) {
		panic(fmt.Sprintf("meridian: a close is forced for reason %q in state %d and phase %v", c.pending.Reason,
			c.state, c.phase))
	}
	if (c.pending.Reason != NoReason) != (c.state >= closeDecided) {
		panic(fmt.Sprintf("meridian: a close for reason %q is in state %d", c.pending.Reason, c.state))
	}
}
