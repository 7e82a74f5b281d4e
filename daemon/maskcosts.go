package daemon

import (
	"fmt"
	"time"
)

// maskCosts limits how much one user's grammar masks delay the decode steps of all users: an expensive mask tends to be
// followed by another one at each token. The decode loop owns it. Costs are in steps of grammar.Limits.Work, because
// time would depend on the load of the machine. The zero value is ready.
type maskCosts struct {
	users map[uint32]*maskCost
	now   func() time.Time // nil: time.Now
}

// maskCost is a user's leaky bucket, in steps.
type maskCost struct {
	steps float64
	at    time.Time
}

const (
	freeMaskSteps = 50_000     // not counted, per mask: about 5 ms; masks of ordinary schemas take far less
	maskBurst     = 20_000_000 // the bucket's size: about 2 s of computing
	maskRate      = 1_000_000  // steps per second that leak out: a tenth of the time
)

// charge adds a mask of owner. It returns an error if owner's bucket is full.
func (m *maskCosts) charge(owner uint32, steps int) error {
	if steps <= freeMaskSteps {
		return nil
	}
	t := m.clock()
	c := m.users[owner]
	if c == nil {
		if m.users == nil {
			m.users = map[uint32]*maskCost{}
		}
		for id, o := range m.users {
			if o.decay(t); o.steps == 0 {
				delete(m.users, id)
			}
		}
		c = &maskCost{at: t}
		m.users[owner] = c
	}
	c.decay(t)
	if c.steps > maskBurst {
		return c.exceeded()
	}
	c.steps += float64(steps - freeMaskSteps)
	return nil
}

// check returns an error if owner's masks have exceeded the burst: their next mask is not computed.
func (m *maskCosts) check(owner uint32) error {
	c := m.users[owner]
	if c == nil {
		return nil
	}
	if c.decay(m.clock()); c.steps <= maskBurst {
		return nil
	}
	return c.exceeded()
}

func (c *maskCost) exceeded() error {
	return fmt.Errorf("its token masks take too long to compute: this user's response formats recently took %.0f "+
		"million "+
		"steps, more than %d million", c.steps/1e6, maskBurst/1_000_000)
}

func (m *maskCosts) clock() time.Time {
	if m.now != nil {
		return m.now()
	}
	return time.Now()
}

// decay removes the steps that have leaked out since the last call.
func (c *maskCost) decay(now time.Time) {
	c.steps = max(0, c.steps-now.Sub(c.at).Seconds()*maskRate)
	c.at = now
}
