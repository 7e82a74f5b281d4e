//go:build cgo && llama_engine

package daemon

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// The copy that the engine makes of weights is in the ledger: info and metrics have what the engine counted, beside the
// weights themselves; --no-repack leaves nothing to count, and our own kernels leave what they do not take.
func TestRepackedCopyIsInTheLedger(t *testing.T) {
	cfg := ggufgen.TinyWide()
	cfg.Type = ggufgen.Q4_K_M
	path := ggufgen.Cached(t, cfg)
	info, err := gguf.Inspect(path)
	if err != nil {
		t.Fatal(err)
	}
	p := gguf.ThisProcessor()
	kept := int64(info.Repacked(p).Copy)
	p.Kernels = false
	foretold := int64(info.Repacked(p).Copy)
	for _, c := range []struct {
		args []string
		want int64
	}{{[]string{"--kernels", "ggml"}, foretold}, {[]string{"--kernels", "ggml", "--no-repack"}, 0}, {nil, kept}} {
		r := serveModel(t, path, c.args...)
		in, err := r.dial().Info(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if in.Memory.Repacked != c.want || in.Memory.Weights != int64(info.TensorBytes) {
			t.Errorf("%v: info has %d bytes repacked beside %d of weights, want %d and %d", c.args, in.Memory.Repacked,
				in.Memory.Weights, c.want, info.TensorBytes)
		}
		doc, err := r.dial().Metrics(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Repacked *int64 `json:"repacked_bytes"`
		}
		if err := json.Unmarshal(doc, &m); err != nil || m.Repacked == nil || *m.Repacked != c.want {
			t.Errorf("%v: metrics have %v (%v), want %d", c.args, m.Repacked, err, c.want)
		}
		r.stop()
	}
}
