package constrain

import (
	"cmp"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// Mask returns the tokens that may come next, at the given place: nil for all. bound reports whether the grammar says
// so. The mask is valid until the next call of any method.
func (c *Constraint) Mask(at Place) (mask sampler.Mask, bound bool) {
	if !c.Applies() {
		return nil, false
	}
	c.settle() // the mask worker gave the beginning of the answer to the matchers
	if bound = at.Answer; c.headed {
		bound = !at.Thought
	}
	if c.row.bound = bound; !bound {
		if at.Header && c.state != InCall {
			return c.masks.notEnd(), false // the turn does not end in a header while the answer is to come
		}
		return nil, false
	}
	if !c.ready && c.affords() {
		c.openers = c.mayOpen(at)
		c.prepare()
	}
	c.charge()
	if c.Err() != nil {
		return sampler.Mask{}, true // excludes every token
	}
	return c.mask, true
}

// Want has the mask of the next token computed during the next decode, unless it is known or its user's masks have cost
// too much.
func (c *Constraint) Want(at Place) {
	if !c.Applies() {
		return
	}
	openers := c.mayOpen(at)
	if c.ready = c.ready && len(openers) == len(c.openers); c.ready { // a thought that has begun cannot begin again
		return
	}
	if first, second := c.sides(); second == nil && first.m != nil && first.m.Ready() && len(openers) == 0 {
		c.mask, c.ready, c.openers = first.m.Mask(), true, nil
		return
	}
	if c.affords() {
		c.openers = openers
		c.masks.want(c)
	}
}

// mayOpen returns the tokens with which the model may open a thought instead of its answer.
func (c *Constraint) mayOpen(at Place) []runtime.Token {
	if c.begun != "" || c.state == InCall {
		return nil
	}
	return at.Openers
}

// affords reports whether the next mask may be computed: unless its grammar has costly masks and those of its user have
// cost too much.
func (c *Constraint) affords() bool {
	if first, _ := c.sides(); c.err == nil && first.costly {
		c.err = c.masks.budget.check(c.owner)
	}
	return c.err == nil
}

// prepare computes the mask of the next token. The mask worker calls it during a decode, the loop if a mask is not
// ready.
func (c *Constraint) prepare() {
	began := time.Now()
	c.start()
	first, second := c.sides()
	c.mask, c.ready = c.maskOf(first.m), true
	if second != nil || len(c.openers) > 0 {
		c.mask = slices.Clone(c.mask)
	}
	if second != nil {
		for i, w := range c.maskOf(second.m) {
			c.mask[i] |= w
		}
	}
	for _, t := range c.openers {
		c.mask[t>>5] |= 1 << (t & 31)
	}
	c.maskTook = time.Since(began)
}

// maskOf returns m's mask and adds its steps to c.work.
func (c *Constraint) maskOf(m *grammar.Matcher) sampler.Mask {
	before := m.Work()
	mask := m.Mask()
	c.work += m.Work() - before
	return mask
}

// charge counts the newest mask once: in the metrics, and against the budget of its user.
func (c *Constraint) charge() {
	if c.maskTook == 0 {
		return
	}
	c.masks.metrics.GrammarMask.Observe(c.maskTook)
	c.masked.Add(1)
	c.maskedNs.Add(int64(c.maskTook))
	c.maskTook = 0
	first, _ := c.sides()
	first.costly = first.costly || c.work > freeMaskSteps
	c.err = cmp.Or(c.err, c.masks.budget.charge(c.owner, c.work))
	c.work = 0
}
