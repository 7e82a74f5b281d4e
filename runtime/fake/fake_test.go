package fake_test

import (
	goruntime "runtime"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

func TestContract(t *testing.T) {
	for _, c := range []struct {
		name     string
		noRanges bool
	}{{"ranges", false}, {"no ranges", true}} {
		t.Run(c.name, func(t *testing.T) {
			enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
				return fake.New(fake.Config{Options: o, Seed: 1, NoRanges: c.noRanges, Advance: func(time.Duration) {
					goruntime.Gosched() // gives an Abort from elsewhere the time a real decode would
				}})
			})
		})
	}
}
