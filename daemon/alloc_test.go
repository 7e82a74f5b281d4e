package daemon

import (
	"context"
	"log/slog"
	"math"
	goruntime "runtime"
	"testing"

	"github.com/uma-serve/uma-serve/internal/invariants"
	"github.com/uma-serve/uma-serve/internal/testutil/race"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// From the scheduler to the socket, and back through the client library, a generated token allocates nothing: what
// is counted here is the whole process over two thousand tokens of four streams.
func TestServingAllocatesNothingPerToken(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checks of invariant builds allocate")
	}
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for name, r := range map[string]*running{
		"alone": serve(t, fake.Config{}, "-c", "32768"),
		"with a draft model": serveEngines(t, slog.New(slog.DiscardHandler), fake.Config{
			Cost: fake.Cost{BaseMs: 0.5}, Advance: spin}, fake.Config{}, overrides{}, "-c", "32768", "--draft-model",
			"small"),
		"with a head": serve(t, withHead(0, fake.Config{Cost: fake.Cost{BaseMs: 0.5}, Advance: spin}), "-c", "32768",
			"--spec-type", "draft-mtp"),
	} {
		t.Run(name, func(t *testing.T) { servingAllocatesNothing(t, r) })
	}
}

func servingAllocatesNothing(t *testing.T, r *running) {
	const streams, tokens, rounds, most = 4, 500, 12, 0.1
	for _, sampled := range []bool{false, true} {
		var streamsOf [streams]interface {
			Next() (*wire.Event, error)
			Close() error
		}
		for i := range streams {
			req := wire.DefaultRequest()
			req.Prompt, req.MaxTokens, req.Sampling.SeedSet = "count", (rounds+2)*tokens, true
			if !sampled {
				req.Sampling.Temperature = 0
			}
			st, err := r.dial().Stream(context.Background(), &req)
			if err != nil {
				t.Fatal(err)
			}
			streamsOf[i] = st
		}
		read := func(n int) {
			for range n {
				for _, st := range streamsOf {
					if _, err := st.Next(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		read(tokens) // buffers find their size
		perToken := math.Inf(1)
		// The least counts: overload wakes and parks goroutines more.
		for done := 0; done < rounds && perToken > most; done++ {
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			read(tokens)
			goruntime.ReadMemStats(&after)
			perToken = min(perToken, float64(after.Mallocs-before.Mallocs)/(streams*tokens))
		}
		t.Logf("sampled %v: %.4f allocations a token", sampled, perToken)
		// The runtime's own (timers, parked goroutines) come to some hundredths; one allocation in a step of four
		// streams would be a quarter.
		if perToken > most {
			t.Errorf("sampled %v: %.3f allocations a token", sampled, perToken)
		}
		for _, st := range streamsOf {
			st.Close()
		}
	}
}
