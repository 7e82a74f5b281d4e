package blocks

import (
	"fmt"
	"slices"
	"testing"
)

// TestClaims: the order in which running requests give up their cells is total, and has answers at its end.
func TestClaims(t *testing.T) {
	var all []Claim
	for _, tier := range []Tier{OutputCritical, Prefix, ThinkActive} {
		for i := range 4 {
			all = append(all, Claim{Resting: i&1 > 0, Background: i&2 > 0, Tier: tier})
		}
	}
	for _, a := range all {
		for _, b := range all {
			if x, y := a.Compare(b), b.Compare(a); (x < 0) != (y > 0) || (x == 0) != (a == b) {
				t.Errorf("%+v against %+v: %d and %d", a, b, x, y)
			}
		}
	}
	slices.SortFunc(all, Claim.Compare)
	got := ""
	for _, c := range all {
		got += fmt.Sprintf("%v resting=%t background=%t\n", c.Tier, c.Resting, c.Background)
	}
	const want = `prefix resting=true background=true
think_active resting=true background=true
prefix resting=true background=false
think_active resting=true background=false
output_critical resting=true background=true
output_critical resting=true background=false
prefix resting=false background=true
think_active resting=false background=true
prefix resting=false background=false
think_active resting=false background=false
output_critical resting=false background=true
output_critical resting=false background=false
`
	if got != want {
		t.Errorf("the order is\n%swant\n%s", got, want)
	}
}
