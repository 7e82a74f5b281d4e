package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/uma-serve/uma-serve/core"
)

// TestRecordingReplaysStepForStep: a recorded daemon under pressure, with preemptions, evictions, copies to memory and
// disk and restores, replays in the core: every step with every operation on cells is decided again.
func TestRecordingReplaysStepForStep(t *testing.T) {
	for _, policy := range []string{"uma", "meridian"} {
		file := filepath.Join(t.TempDir(), "trace")
		r := oversubscribe(t, 32, 32*280/3, "--policy", policy, "--cache-ram", "64MiB", "--cache-dir",
			filepath.Join(t.TempDir(), "kv"),
			"--think-evict", "offload", "--trace", file)
		for range 2 { // what was evicted comes back
			if a := r.ask(r.dial(), raw(text(0, 60), 20)); a.err != nil {
				t.Fatal(a.err)
			}
		}
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		recording, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := core.Replay(recording)
		if err != nil {
			t.Fatalf("%s: %v, after %+v", policy, err, got)
		}
		for _, what := range []string{"preempted", "copy_out", "remove", "copy seq="} {
			if !bytes.Contains(recording, []byte("#core > "+what)) {
				t.Errorf("%s: the recording has no %q: the test shows too little", policy, what)
			}
		}
		t.Logf("%s: %+v", policy, got)

		// A step that the core did not decide is found.
		i := bytes.Index(recording, []byte("#core > remove seq="))
		forged := bytes.Clone(recording)
		copy(forged[i:], "#core > remove xeq=")
		if _, err := core.Replay(forged); err == nil {
			t.Errorf("%s: a forged step replays", policy)
		}
	}
}
