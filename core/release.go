package core

import (
	"fmt"
	"slices"

	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// release takes the sequence of a request that ended or was preempted.
func (c *Core) release(now Instant, rel *sched.Release) {
	r := c.slots[rel.Seq]
	if r == nil && rel.Final {
		return // cancelled before core gave it a sequence
	}
	if r == nil || r.ID != rel.Req {
		panic(fmt.Sprintf("core: request %d releases slot %d, which it does not have", rel.Req, rel.Seq))
	}
	c.slots[rel.Seq] = nil
	switch {
	case r.Kind == Embed:
		c.dropText(r, rel.Final)
	case rel.Reason == reason.Failed:
		// The content of the cells after a failed decode is unknown, so they must not become a cached prefix.
		c.ended(c.tree.Release(r.seq))
		r.seq = NoSeq
	case rel.Final && r.Chat && r.cut == 0: // the next turn's prompt begins with the uncut history
		r.lingers = r.computed
		c.lingering = append(c.lingering, r)
		c.step.Histories = append(c.step.Histories, r)
	case rel.Final:
		c.retain(now, r, r.Tokens[:r.computed])
	default:
		r.had, r.asked, r.joined, r.restored, r.thought.ingests = r.computed, false, false, Device, 0
		r.guess.text.n, r.guess.draft.n = 0, 0
		c.dropDraft(r)
		c.park(now, r, rel)
		c.offloadable(r)
	}
	r.computed = 0
}

// retain ends r's sequence and keeps its cells of history as a cached prefix.
func (c *Core) retain(now Instant, r *Request, history []Token) {
	c.kept(r, c.tree.Retain(kvsnap.Instant(now), r.seq, history))
}

// park keeps what a preempted request has computed until it runs again or ends.
func (c *Core) park(now Instant, r *Request, rel *sched.Release) {
	before := c.ledger.AnswerBlocks()
	c.kept(r, c.tree.Park(kvsnap.Instant(now), r.seq))
	n := c.ledger.AnswerBlocks() - before
	if n > 0 && (rel.Reason == reason.PreemptCells || rel.Reason == reason.PreemptFull) && c.lowerHas(r) {
		c.avoidable += n
	}
}

// kept records that the tree has made r's sequence a cached prefix.
func (c *Core) kept(r *Request, e kvsnap.Released) {
	r.seq = NoSeq
	c.ended(e)
	if e.Entry != 0 && c.cfg.Durable {
		c.copies = append(c.copies, e.Entry)
	}
}

func (c *Core) ended(e kvsnap.Released) {
	c.do(e.Actions)
	c.wake(e.Wake)
}

// A conversation's next turn begins with its history as the chat template renders it, which can differ from what was
// computed: many templates drop past thinking. So the sequence of a chat that has ended lingers until the caller has
// rendered the history (Step.Histories). Then the longest common prefix stays cached.

// historyReady ends the lingering of a chat.
func (c *Core) historyReady(now Instant, id ID, tokens []Token) {
	i := slices.IndexFunc(c.lingering, func(r *Request) bool { return r.ID == id })
	if i < 0 {
		return
	}
	r := c.lingering[i]
	c.lingering = slices.Delete(c.lingering, i, i+1)
	if tokens == nil {
		tokens = r.Tokens[:r.lingers]
	}
	c.retain(now, r, tokens)
}

// settleHistories caches all that the lingering chats have computed: their cells or sequence ids are needed now.
func (c *Core) settleHistories(now Instant) {
	for _, r := range c.lingering {
		c.retain(now, r, r.Tokens[:r.lingers])
	}
	clear(c.lingering)
	c.lingering = c.lingering[:0]
}

// lowerHas reports whether evictable cells, or a request that is not answering, could have given up cells instead of
// the answer of r. Evictable cells could only have done so if there were enough for a step: one for each running
// request.
func (c *Core) lowerHas(r *Request) bool {
	running := 0
	for _, o := range c.slots {
		if o != nil && !o.ended {
			running++
		}
	}
	if c.evictable > max(running, c.plan.Tokens) {
		return true
	}
	for _, o := range c.slots {
		if o != nil && o != r && c.tree.Own(o.seq) > 0 && o.Class >= r.Class &&
			(o.Generated() == 0 || o.Control.Phase() == meridian.ThinkDecode) {
			return true
		}
	}
	return false
}
