//go:build cgo && (llama_engine || llama_system)

package snapshot

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// realKV is the snapshot of a few hundred tokens of text, computed by the engine.
func realKV(b *testing.B, model, kvType string) []byte {
	const n = 512
	e, err := llama.Open(runtime.Options{ModelPath: model, ContextTokens: 1024, Batch: n, MicroBatch: n, Sequences: 4,
		Threads: 2, KVTypeK: kvType, KVTypeV: kvType, FlashAttn: "on"})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "ARCHITECTURE.md"))
	if err != nil {
		b.Fatal(err)
	}
	tokens, err := e.Vocab().Tokenize(nil, string(text), true, false)
	if err != nil || len(tokens) < n {
		b.Fatalf("%d tokens: %v", len(tokens), err)
	}
	batch := e.Batch()
	batch.Reset()
	for i, t := range tokens[:n] {
		batch.Add(t, runtime.Pos(i), 0, i == n-1)
	}
	if err := e.Decode(); err != nil {
		b.Fatal(err)
	}
	size, err := e.SnapshotSize(0, 0, n)
	if err != nil {
		b.Fatal(err)
	}
	kv := make([]byte, size)
	if size, err = e.Snapshot(kv, 0, 1, 0, n); err != nil {
		b.Fatal(err)
	}
	return kv[:size]
}

// BenchmarkCompress is the measurement behind maxRatio: how much zstd saves of real KV bytes, and what it costs.
// UMA_KV_MODEL adds a model of your own.
func BenchmarkCompress(b *testing.B) {
	wide := ggufgen.Bench135M()
	models := map[string]string{"tiny": ggufgen.Cached(b, ggufgen.Tiny())}
	if !testing.Short() {
		models["135m"] = ggufgen.Cached(b, wide)
	}
	if own, _ := filepath.Glob(filepath.Join("..", "..", "models", "*.gguf")); len(own) > 0 {
		models["built-in"] = own[0]
	}
	if own := os.Getenv("UMA_KV_MODEL"); own != "" {
		models["own"] = own
	}
	for name, path := range models {
		for _, kvType := range []string{"f16", "q8_0"} {
			kv := realKV(b, path, kvType)
			for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault} {
				b.Run(name+"/"+kvType+"/"+level.String(), func(b *testing.B) {
					enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1),
						zstd.WithEncoderCRC(false))
					if err != nil {
						b.Fatal(err)
					}
					dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
					if err != nil {
						b.Fatal(err)
					}
					var out, back []byte
					b.SetBytes(int64(len(kv)))
					for b.Loop() {
						out = enc.EncodeAll(kv, out[:0])
					}
					begin := time.Now()
					if back, err = dec.DecodeAll(out, back[:0]); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(len(out))/float64(len(kv)), "ratio")
					b.ReportMetric(float64(len(back))/time.Since(begin).Seconds()/1e6, "decode-MB/s")
				})
			}
			b.Run(name+"/"+kvType+"/blake3", func(b *testing.B) {
				b.SetBytes(int64(len(kv)))
				for b.Loop() {
					blake3.Sum256(kv)
				}
			})
		}
	}
}
