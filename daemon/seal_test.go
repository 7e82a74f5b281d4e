package daemon

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// A model with states (recurrent layers) shares prompts at seals. The answers must equal those of a daemon that
// computes everything.

// TestStatesComeBack: a prompt resumes at the seals of an earlier one, in the pool, from host memory, and from disk in
// another process.
func TestStatesComeBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	args := []string{"-c", "4000", "--cache-ram", "64MiB", "--cache-dir", dir}
	ask, parts := raw(text(0, 900), 20), raw(text(0, 700)+unlike(1, 100), 20)
	want, wantParts := solo(t, ask), solo(t, parts)
	r := serve(t, fake.Config{NoRanges: true}, args...)
	r.expect("first", ask, want, wire.TierNone, 0)
	r.expect("again", ask, want, wire.TierDevice, 899)
	r.expect("parts from it", parts, wantParts, wire.TierDevice, 512)
	r.expect("parts from it, again", parts, wantParts, wire.TierDevice, 799)
	r.expect("where both part", raw(text(0, 700)+unlike(2, 50), 20), solo(t, raw(text(0, 700)+unlike(2, 50), 20)),
		wire.TierDevice, 700)
	r.evictAll()
	r.expect("from host memory", ask, want, wire.TierHost, 899)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = serve(t, fake.Config{NoRanges: true}, args...)
	r.expect("from disk", ask, want, wire.TierDisk, 899)
	r.expect("a part from disk", parts, wantParts, wire.TierDisk, 799)
	r.stop()
}

// TestStatesAreShared: of a system prompt that several clients have in common, one computes what all need.
func TestStatesAreShared(t *testing.T) {
	const system, clients = 1000, 4
	edit := func(i int) func(*wire.Request) {
		return func(w *wire.Request) {
			w.Messages = []wire.Message{{Role: "system", Content: text(7, system)}, {Role: "user",
				Content: text(i, 50)}}
			w.MaxTokens = 8
		}
	}
	var want [clients]answer
	for i := range want {
		want[i] = solo(t, edit(i))
	}
	r := serve(t, fake.Config{NoRanges: true}, "-c", "8000")
	var wg sync.WaitGroup
	prompts := 0
	for i := range clients {
		prompts += want[i].eos.Usage.PromptTokens
		wg.Go(func() {
			if got := r.ask(r.dial(), edit(i)); got.err != nil || got.text != want[i].text {
				t.Errorf("client %d: %+v, alone %+v", i, got, want[i])
			}
		})
	}
	wg.Wait()
	r.settled()
	computed := r.counter("prefill_tokens_merged_total")
	if most := float64(prompts - (clients-1)*system); computed > most {
		t.Errorf("%v of %d prompt tokens were computed, want at most %v", computed, prompts, most)
	}
}
