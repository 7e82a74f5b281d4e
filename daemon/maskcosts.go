package daemon

import (
	"fmt"
	"time"
)

// maskCosts bounds how long one user's masks hold up the decode steps of all: a mask that is expensive is followed by
// another one at each token. It belongs to the decode loop. Costs are counted in steps (grammar.Limits.Work), because
// the time of a mask also tells how busy the machine is. The zero value is ready.
type maskCosts struct {
	users map[uint32]*maskCost
	now   func() time.Time // nil: time.Now
}

// maskCost is what a user's masks have taken lately, in steps.
type maskCost struct {
	steps float64
	at    time.Time
}

const (
	// freeMaskSteps of each mask are not counted: about 5 ms. The masks of ordinary schemas stay far below.
	freeMaskSteps = 50_000
	// A user's masks may take maskBurst steps beyond at once, about 2 seconds, and maskRate a second in the long run: a
	// tenth of the time.
	maskBurst = 20_000_000
	maskRate  = 1_000_000
)

// charge counts a mask of owner. The error says that owner's masks have taken too much.
func (m *maskCosts) charge(owner uint32, steps int) error {
	if steps <= freeMaskSteps {
		return nil
	}
	now := time.Now
	if m.now != nil {
		now = m.now
	}
	t := now()
	c := m.users[owner]
	if c == nil {
		if m.users == nil {
			m.users = map[uint32]*maskCost{}
		}
		for id, o := range m.users {
			if o.pay(t); o.steps == 0 {
				delete(m.users, id)
			}
		}
		c = &maskCost{at: t}
		m.users[owner] = c
	}
	c.pay(t)
	if c.steps > maskBurst {
		return fmt.Errorf("the tokens that it allows take too long to compute: this user's forms took %.0f million steps lately, more than %d million",
			c.steps/1e6, maskBurst/1_000_000)
	}
	c.steps += float64(steps - freeMaskSteps)
	return nil
}

// pay lets time forgive steps.
func (c *maskCost) pay(now time.Time) {
	c.steps = max(0, c.steps-now.Sub(c.at).Seconds()*maskRate)
	c.at = now
}
