package constrain

import (
	"fmt"
	"time"
)

// budget limits how much one user's grammar masks delay the decode steps of all users: an expensive mask tends to be
// followed by another one at each token. The decode loop owns it. Costs are in steps of grammar.Limits.Work, because
// time would depend on the load of the machine. The zero value is ready.
type budget struct {
	users map[uint32]*bucket
	now   func() time.Time // nil: time.Now
}

// bucket is a user's leaky bucket, in steps.
type bucket struct {
	steps float64
	at    time.Time
}

const (
	freeMaskSteps = 50_000     // not counted, per mask: about 5 ms; masks of ordinary schemas take far less
	maskBurst     = 20_000_000 // the bucket's size: about 2 s of computing
	maskRate      = 1_000_000  // steps per second that leak out: a tenth of the time
)

// charge adds a mask of owner. It returns an error if owner's bucket is full.
func (g *budget) charge(owner uint32, steps int) error {
	if steps <= freeMaskSteps {
		return nil
	}
	t := g.clock()
	b := g.users[owner]
	if b == nil {
		if g.users == nil {
			g.users = map[uint32]*bucket{}
		}
		for id, o := range g.users {
			if o.decay(t); o.steps == 0 {
				delete(g.users, id)
			}
		}
		b = &bucket{at: t}
		g.users[owner] = b
	}
	b.decay(t)
	if b.steps > maskBurst {
		return b.exceeded()
	}
	b.steps += float64(steps - freeMaskSteps)
	return nil
}

// check returns an error if owner's masks have exceeded the burst: their next mask is not computed.
func (g *budget) check(owner uint32) error {
	b := g.users[owner]
	if b == nil {
		return nil
	}
	if b.decay(g.clock()); b.steps <= maskBurst {
		return nil
	}
	return b.exceeded()
}

func (b *bucket) exceeded() error {
	return fmt.Errorf("its token masks take too long to compute: this user's response formats recently took %.0f "+
		"million "+
		"steps, more than %d million", b.steps/1e6, maskBurst/1_000_000)
}

func (g *budget) clock() time.Time {
	if g.now != nil {
		return g.now()
	}
	return time.Now()
}

// decay removes the steps that have leaked out since the last call.
func (b *bucket) decay(now time.Time) {
	b.steps = max(0, b.steps-now.Sub(b.at).Seconds()*maskRate)
	b.at = now
}
