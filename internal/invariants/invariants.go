// Package invariants switches checks on in test builds only.
//
// They are on under the build tags `invariants` and `race`:
//
//	if invariants.Enabled {
//		s.check()
//	}
//
// compiles to nothing otherwise.
package invariants

import "sync/atomic"

// CloseChecker panics when its owner is closed twice. Embed it by value and call Close at the beginning of the owner's
// Close. It costs nothing in builds without invariants. The zero value is open.
type CloseChecker struct {
	closed [size]atomic.Bool
}

// Close records the close; the second one panics.
func (c *CloseChecker) Close() {
	for i := range c.closed {
		if c.closed[i].Swap(true) {
			panic("closed twice")
		}
	}
}

// AssertOpen panics when Close was called before.
func (c *CloseChecker) AssertOpen() {
	for i := range c.closed {
		if c.closed[i].Load() {
			panic("used after close")
		}
	}
}
