package kvevents

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestPython: pyzmq receives what is published and replayed, and msgspec decodes it with vLLM's classes. UMA_ZMQ_PYTHON
// names a Python that has both (make cluster installs one).
func TestPython(t *testing.T) {
	python := os.Getenv("UMA_ZMQ_PYTHON")
	if python == "" {
		t.Skip("UMA_ZMQ_PYTHON is not set")
	}
	h := NewHub(time.Now)
	s := listen(t, h)
	h.Apply("m", &Message{Events: []Event{{NS: 7, Hashes: []uint64{1 << 63, 12}, Tokens: run(100_000, 32)}}})
	cmd := exec.Command(python, "testdata/subscribe.py", s.Endpoint(), s.ReplayEndpoint(), "3")
	cmd.Stderr = os.Stderr
	out := new(strings.Builder)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the subscriber", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for p := range s.peers {
			p.mu.Lock()
			live := p.live
			p.mu.Unlock()
			if live {
				return true
			}
		}
		return false
	})
	h.Apply("m", &Message{Events: []Event{{Tier: Storage, First: 1, Parent: 1 << 63, Hashes: []uint64{12},
		Tokens: run(0, 16)}}})
	h.Apply("m", &Message{Events: []Event{{Removed: true, Hashes: []uint64{12, 1 << 63}}}})
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, out)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var e struct {
			Source, Type, Medium string
			Blocks, Tokens       int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Join([]string{e.Source, e.Type, e.Medium}, " "))
	}
	want := []string{"published AllBlocksCleared ", "published BlockStored GPU", "published BlockStored GPU",
		"published BlockStored STORAGE", "published BlockRemoved GPU", "replayed AllBlocksCleared ",
		"replayed BlockStored STORAGE"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}
