package hosttier

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/host/hostmem"
)

const gib = int64(1) << 30

func TestBudget(t *testing.T) {
	machine := func(total, available float64) hostmem.Memory { // in GiB
		return hostmem.Memory{Total: uint64(total * (1 << 30)), Available: uint64(available * (1 << 30))}
	}
	for name, x := range map[string]struct {
		most, left, held int64
		machine          hostmem.Memory
		want             int64
	}{
		"as asked for":                 {4 * gib, 20 * gib, 0, machine(24, 22), 4 * gib},
		"what the models leave":        {4 * gib, 3 * gib, 0, machine(24, 22), 3 * gib},
		"nothing is left":              {4 * gib, -gib, 2 * gib, machine(24, 22), 0},
		"the machine cannot spare it":  {8 * gib, 20 * gib, gib, machine(20, 3), 3 * gib},
		"other programs need some":     {8 * gib, 20 * gib, 4 * gib, machine(20, 0.5), 7 * gib / 2},
		"other programs need all":      {8 * gib, 20 * gib, gib / 2, machine(20, 0.01), 0},
		"the machine tells no numbers": {8 * gib, 20 * gib, gib, machine(0, 0), 8 * gib},
		"a small machine keeps 256 M":  {gib, gib, 0, machine(1, 0.5), gib / 4},
	} {
		if got := Budget(x.most, x.left, x.held, x.machine); got != x.want {
			t.Errorf("%s: %d, want %d", name, got, x.want)
		}
	}
}

func TestDivide(t *testing.T) {
	const all = 1200
	for name, x := range map[string]struct {
		uses []Use
		want []int64
	}{
		"none":             {nil, []int64{}},
		"alone":            {[]Use{{Most: all}}, []int64{1200}},
		"without requests": {[]Use{{Most: all}, {Most: all}}, []int64{600, 600}},
		"idle ones keep what they hold, the rest goes by use": {
			[]Use{{Bytes: 400, Most: all}, {Bytes: 200, Most: all, Weight: 3}, {Most: all, Weight: 1}},
			[]int64{400 + 7, 200 + 444, 148}},
		"a busy one takes what is free, and from idle ones": {
			[]Use{{Bytes: 600, Most: all, Weight: 0.1}, {Bytes: 600, Evicting: true, Most: all, Weight: 1.1}},
			[]int64{100, 1100}},
		"two busy ones share by use": {
			[]Use{{Bytes: 900, Evicting: true, Most: all, Weight: 1},
				{Bytes: 300, Evicting: true, Most: all, Weight: 2}},
			[]int64{400, 800}},
		"its own cap holds": {[]Use{{Bytes: 50, Evicting: true, Most: 100, Weight: 9}, {Bytes: 100, Most: all}},
			[]int64{100, 1100}},
		"without a tier": {[]Use{{Weight: 5}, {Most: all}}, []int64{0, 1200}},
	} {
		got := Divide(all, x.uses)
		for i := range got {
			if d := got[i] - x.want[i]; d < -1 || d > 1 {
				t.Errorf("%s: %d, want %d", name, got, x.want)
				break
			}
		}
	}
}

// TestDivideKeepsTheBudget: whatever the tiers hold, their caps are within the budget and their own limits, nothing is
// left unused while one of them may have it, and more requests never mean less memory.
func TestDivideKeepsTheBudget(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 2000 {
		uses := make([]Use, 1+r.IntN(12))
		room := int64(0)
		for i := range uses {
			uses[i] = Use{Bytes: r.Int64N(2000) - 10, Evicting: r.IntN(2) == 0, Most: r.Int64N(3000) - 10,
				Weight: float64(r.IntN(5))}
			room += max(uses[i].Most, 0)
		}
		budget := r.Int64N(8000)
		caps := Divide(budget, uses)
		sum := int64(0)
		for i, n := range caps {
			if sum += n; n < 0 || n > max(uses[i].Most, 0) {
				t.Fatalf("seed %d: budget %d, %+v: %d", seed, budget, uses, caps)
			}
		}
		if slack := int64(len(uses)); sum > budget || sum < min(budget, room)-slack {
			t.Fatalf("seed %d: budget %d, %+v: %d", seed, budget, uses, caps)
		}
		i := r.IntN(len(uses))
		more := slices.Clone(uses)
		more[i].Weight += 2
		if busier := Divide(budget, more); busier[i] < caps[i]-2 {
			t.Fatalf("seed %d: budget %d, %+v: %d; with more requests %d of %d", seed, budget, uses, caps, busier, i)
		}
	}
}

func TestDecay(t *testing.T) {
	if w := Decay(8, 2*halfLife, 1); w != 3 {
		t.Errorf("%v after two half-lives and a request", w)
	}
	if w := Decay(1, 0, 0); w != 1 {
		t.Errorf("%v after no time", w)
	}
	if w := Decay(1, 100*time.Hour, 0); w > 1e-100 {
		t.Errorf("%v after days", w)
	}
}

func TestChanged(t *testing.T) {
	for _, x := range []struct {
		old, now int64
		want     bool
	}{{100, 100, false}, {1000, 1050, false}, {1000, 1100, true}, {1000, 990, false}, {1000, 900, true}, {0, 1, true},
		{1, 0, true}} {
		if Changed(x.old, x.now) != x.want {
			t.Errorf("%d → %d", x.old, x.now)
		}
	}
}
