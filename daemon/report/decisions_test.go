package report

import (
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/sched/price"
)

// TestPriceText: each way has its sentence.
func TestPriceText(t *testing.T) {
	for _, c := range []struct {
		tier core.Tier
		p    price.Price
		want string
	}{
		{core.Host, price.Price{Way: price.WayRestore},
			"Restores 640 tokens of its prompt that the host tier has: too little was measured to compare with " +
				"computing them."},
		{core.Disk, price.Price{Way: price.WayRestore, Restore: 1234567, Compute: 98765432},
			"Restores 640 tokens of its prompt that the disk tier has: 1.23ms are predicted, 98.8ms for computing " +
				"them."},
		{core.Fabric, price.Price{Way: price.WayCompute, Restore: 2 * time.Second, Compute: 50 * time.Millisecond},
			"Computes 640 tokens of its prompt that the fabric may have: 50ms are predicted for that, 2s for a " +
				"restore."},
		{core.Fabric, price.Price{Way: price.WayTrial, Restore: 2 * time.Second, Compute: 50 * time.Millisecond},
			"Restores 640 tokens of its prompt that the fabric may have, to measure the tier again: 2s are " +
				"predicted, 50ms for computing them."},
	} {
		p := Price{Tokens: 640, Tier: c.tier, Price: c.p}
		if got := p.text(); got != c.want {
			t.Errorf("it says %q, want %q", got, c.want)
		}
	}
}
