package daemon

import (
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestDeviceGraphs: graphs of a device are counted, one for each pass over a part of a batch.
func TestDeviceGraphs(t *testing.T) {
	for devices, want := range map[uint32]bool{1: false, 3: true} {
		r := serve(t, fake.Config{Devices: devices})
		c := r.dial()
		if a := r.ask(c, nil); a.err != nil {
			t.Fatal(a.err)
		}
		if got := r.counter("device_graphs_total"); (got > 0) != want {
			t.Errorf("%b: %v graphs", devices, got)
		}
	}
}

// TestDeviceProbes: where the engine probes rows on a device, the forks of a thought are such rows, and what was copied
// of the others is counted.
func TestDeviceProbes(t *testing.T) {
	for devices, want := range map[uint32]bool{1: false, 3: true} {
		r := serve(t, fake.Config{Devices: devices, Scripts: []fake.Script{{Emit: "<think>" + thoughts(60) +
			"</think>It is 42."}}}, "--early-exit", "eat", "--meridian", "eat_probe_interval_tokens=8", "--meridian",
			"eat_ema_variance_threshold=0", "-c", "4000")
		a := r.ask(r.dial(), func(q *wire.Request) { q.MaxTokens = 3000 })
		if a.err != nil || a.eos.Thought.Probes == 0 {
			t.Fatalf("%+v", a)
		}
		r.settled()
		probes, logits := r.counter("device_probes_total"), r.counter("device_logits_bytes_total")
		if !want && (probes != 0 || logits != 0) {
			t.Errorf("without a device %v rows were probed there, and %v bytes copied", probes, logits)
		}
		// A drawn token has a row; of some rows nothing is drawn.
		least, row := a.eos.Usage.CompletionTokens, 4*r.engine.Vocab().Size()
		if want && (int(probes) != a.eos.Thought.Probes || int(logits) < least*row || int(logits)%row != 0) {
			t.Errorf("%v rows of %d forks were probed on the device, and %v bytes of logits copied for %d tokens; a "+
				"row has %d bytes", probes, a.eos.Thought.Probes, logits, least, row)
		}
	}
}
