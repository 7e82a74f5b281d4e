package sim

import (
	"slices"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/index"
)

// thoughts are the finished thoughts outside the pool (--think-evict offload), beside the prefixes: at most a quarter
// of the host tier's tokens, the oldest dropped first. With a fabric they are in the fabric, without a bound.
type thoughts struct {
	list   []*outside
	tokens int64
	sent   []sent // batches that core has not been told of, in order
}

// sent is a batch that is complete, or will be.
type sent struct {
	req core.ID
	at  int64
}

// arrive tells of the batches that are complete.
func (t *thoughts) arrive(tell func(core.ID), now int64) {
	n := 0
	for ; n < len(t.sent) && t.sent[n].at <= now; n++ {
		tell(t.sent[n].req)
	}
	t.sent = slices.Delete(t.sent, 0, n)
}

// next returns the time at which the next batch is complete.
func (t *thoughts) next() (at int64, ok bool) {
	if len(t.sent) == 0 {
		return 0, false
	}
	return t.sent[0].at, true
}

// outside is a finished thought outside the pool.
type outside struct {
	req    core.ID
	parts  []*index.Node // P0 and P1 alone count
	tokens int64
}

func (t *stores) thought(req core.ID) *outside {
	for _, o := range t.thoughts.list {
		if o.req == req {
			return o
		}
	}
	return nil
}

// offload stores a part of a thought.
func (t *stores) offload(op *core.Op) {
	o := t.thought(op.Req)
	if o == nil {
		o = &outside{req: op.Req}
		t.thoughts.list = append(t.thoughts.list, o)
	}
	n := int64(op.To - op.From)
	o.parts = append(o.parts, &index.Node{P0: op.From, P1: op.To, Owner: &stored{thought: true}})
	o.tokens += n
	t.thoughts.tokens += n
	t.spend(op.To - op.From)
	for !t.fabric && t.thoughts.tokens > t.host.Cap/4 && len(t.thoughts.list) > 0 {
		t.thoughts.tokens -= t.thoughts.list[0].tokens
		t.thoughts.list = slices.Delete(t.thoughts.list, 0, 1)
	}
	at := t.now
	if t.fabric {
		at = t.write(tierFabric, n)
	}
	if op.Last {
		t.thoughts.sent = append(t.thoughts.sent, sent{op.Req, at})
	}
}

// fetchThought begins to read a thought, or the rest of it.
func (t *stores) fetchThought(op *core.Op, now int64) {
	f := &fetch{id: op.Restore}
	t.fetches = append(t.fetches, f)
	o := t.thought(op.Req)
	if o == nil {
		return
	}
	tier, at := tierHost, float64(now)
	if t.fabric {
		tier = tierFabric
	}
	for _, p := range o.parts {
		if p.P0 < op.From || p.P1 > len(op.Tokens) {
			continue
		}
		if tier != tierHost {
			at += float64(t.us[tier] * float64(p.P1-p.P0))
		}
		f.chain, f.from, f.ready = append(f.chain, p), append(f.from, tier), append(f.ready, int64(at))
	}
}

// thoughtTier returns the tier of thoughts.
func (t *stores) thoughtTier() core.Tier {
	if t.fabric {
		return core.Fabric
	}
	return core.Host
}

// endThought forgets the thought of a request that has ended. Without a fabric the host tier's bound does so.
func (t *stores) endThought(req core.ID) {
	if t == nil || !t.fabric {
		return
	}
	t.thoughts.list = slices.DeleteFunc(t.thoughts.list, func(o *outside) bool {
		if o.req == req {
			t.thoughts.tokens -= o.tokens
		}
		return o.req == req
	})
}
