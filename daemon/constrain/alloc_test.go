package constrain

import (
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/uma-serve/uma-serve/internal/invariants"
)

// TestNothingIsAllocatedPerToken: once an answer's masks are known, a token of it allocates nothing but the growth of
// the matcher's history.
func TestNothingIsAllocatedPerToken(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks of invariant builds allocate")
	}
	a, refused := newAnswer(t, &datadriven.TestData{Input: "[a-z ]*", CmdArgs: []datadriven.CmdArg{{Key: "regex"}}})
	if a == nil {
		t.Fatal(refused)
	}
	tok := a.v.Find("x")
	next := func() {
		at := a.place()
		if mask, _ := a.c.Mask(at); !mask.Has(tok) {
			t.Fatal("it may not come")
		}
		if _, bad := a.c.Accept(tok, at, 100); bad != nil {
			t.Fatal(bad.Message)
		}
		a.ctl.OnToken(tok, a.v.Piece(tok), false, 0)
		if _, bad := a.c.Follow(tok, Heard{At: a.place()}); bad != nil {
			t.Fatal(bad.Message)
		}
		a.decode()
	}
	next()
	if n := testing.AllocsPerRun(10_000, next); n > 0 { // the average, rounded down
		t.Errorf("%.0f allocations a token", n)
	}
}
