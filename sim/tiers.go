package sim

import "github.com/uma-serve/uma-serve/core"

// Tiers keeps cells outside the pool for a simulated shell around core: host memory, disk and fabric, as Config
// describes them. It is the core's Stores, and carries its copies out.
type Tiers struct{ *stores }

// NewTiers returns nil when the configuration has none.
func NewTiers(cfg *Config) *Tiers {
	if s := newStores(cfg); s != nil {
		return &Tiers{s}
	}
	return nil
}

// Arrive tells core of the parts that are ready at now, microseconds. Call it before each core.Next.
func (t *Tiers) Arrive(c *core.Core, now int64) { t.arrive(c, now) }

// Next returns the time at which the next part will be ready; false when none is awaited.
func (t *Tiers) Next() (at int64, ok bool) { return t.next() }

// Carry carries op out at now, if it is one of a copy, and adds to res what core is to be told.
func (t *Tiers) Carry(op *core.Op, now int64, res *core.Result) { t.carry(op, now, res) }

// Passed returns how long, in microseconds, the copies since the last call took.
func (t *Tiers) Passed() int64 { return t.passed() }

// Restored counts the tokens that came back, by TierNames.
func (t *Tiers) Restored() [3]int64 { return t.restored }

// carry carries out an operation of a copy. It returns up to where a CopyIn has come.
func (t *stores) carry(op *core.Op, now int64, res *core.Result) (to int) {
	if t == nil {
		return 0
	}
	switch op.Kind {
	case core.Fetch:
		if op.Req != 0 {
			t.fetchThought(op, now)
		} else {
			t.fetch(op, now)
		}
	case core.SkipPart:
		t.skip(op)
	case core.CloseFetch:
		t.close(op)
	case core.CopyIn:
		d := t.copyIn(op, now)
		res.Copies = append(res.Copies, d)
		res.CopyTokens += d.To - op.From
		return d.To
	case core.OffloadBlock:
		t.offload(op)
		res.CopyTokens += op.To - op.From
	case core.CopyOut:
		// One that follows a failed one lacks the part before it.
		if t.failed = op.Follows && t.failed || !t.put(op.NS, op.Tokens, op.From); t.failed {
			res.CopyFailed = true
			return 0
		}
		t.spend(op.To - op.From)
		res.CopyTokens += op.To - op.From
	}
	return 0
}
