//go:build cgo && (llama_engine || llama_system)

package snapshot

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

// TestEngineRoundTrip takes a conversation out of the real engine in parts, through every tier, and back in: the cells
// are the same bytes, and the next token's logits are the same bits as the original's.
func TestEngineRoundTrip(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA()} {
		t.Run(string(cfg.Arch), func(t *testing.T) {
			const n, scratch = 200, 7
			path := ggufgen.Cached(t, cfg)
			// One thread and one shape of batch: what differs then can only be the cells.
			e, err := llama.Open(runtime.Options{ModelPath: path, ContextTokens: 1024, Batch: 256, MicroBatch: 256,
				Sequences: 8, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			caps, info := e.Capabilities(), e.Model()
			part := 64
			if most := caps.SnapshotTokens; most > 0 {
				part = min(part, most)
			}
			fp, err := Fingerprint([]string{path})
			if err != nil {
				t.Fatal(err)
			}
			o := testOptions()
			o.Origin.Fingerprint, o.Origin.EngineBuild, o.Origin.KVTypeK, o.Origin.KVTypeV = fp, caps.EngineBuild,
				info.KVTypeK, info.KVTypeV
			o.Dir, o.DiskBytes, o.WholeParts = filepath.Join(t.TempDir(), "kv"), 1<<30, caps.Seals
			c := open(t, o)

			tokens := make([]Token, n)
			for i := range tokens {
				tokens[i] = Token((i*37 + i*i) % info.VocabSize)
			}
			b := e.Batch()
			b.Reset()
			for i, tok := range tokens {
				b.Add(tok, runtime.Pos(i), 0, false)
			}
			if err := e.Decode(); err != nil {
				t.Fatal(err)
			}
			snapshot := func(s runtime.Seq, p0, p1 int) []byte {
				t.Helper()
				size, err := e.SnapshotSize(s, runtime.Pos(p0), runtime.Pos(p1))
				if err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, size)
				k, err := e.Snapshot(buf, s, scratch, runtime.Pos(p0), runtime.Pos(p1))
				if err != nil {
					t.Fatal(err)
				}
				return buf[:k]
			}
			var parts [][]byte
			var last Key
			for p := 0; p < n; p += part {
				end := min(p+part, n)
				bytes := snapshot(0, p, end)
				parts = append(parts, bytes)
				buf, err := c.Buffer(len(bytes))
				if err != nil {
					t.Fatal(err)
				}
				copy(buf.Bytes(), bytes)
				if last, err = c.Put(1000, tokens[:end], p, buf); err != nil {
					t.Fatal(err)
				}
			}
			next := func(s runtime.Seq) []float32 {
				t.Helper()
				b := e.Batch()
				b.Reset()
				b.Add(3, n, s, true)
				if err := e.Decode(); err != nil {
					t.Fatal(err)
				}
				return slices.Clone(e.Logits(0))
			}
			want := next(0)
			e.SeqRemove(0, 0, -1)

			restoreInto := func(tier Tier) {
				t.Helper()
				m, ok := c.Lookup(1000, tokens)
				if !ok || m.Tokens != n || m.Tier != tier || m.Parts != len(parts) {
					t.Fatalf("%+v, %v", m, ok)
				}
				woken := make(chan struct{}, 16)
				r, err := c.Fetch(m, func() { woken <- struct{}{} })
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				for i, st := 0, Ready; st != Done; {
					var p Part
					switch p, st = r.Next(); st {
					case Waiting:
						<-woken
					case Failed:
						t.Fatal(r.Err())
					case Ready:
						if !bytes.Equal(p.Bytes, parts[i]) {
							t.Fatalf("%v: part %d has other bytes", tier, i)
						}
						if err := e.Restore(p.Bytes, 0, scratch); err != nil {
							t.Fatal(err)
						}
						i++
					}
				}
				// llama.cpp writes the id of the sequence it saves into the bytes: the same way out gives the same
				// bytes.
				for i := range parts {
					if !bytes.Equal(snapshot(0, i*part, min(i*part+part, n)), parts[i]) {
						t.Errorf("%v: part %d is not the same in the engine", tier, i)
					}
				}
				if got := next(0); !slices.Equal(got, want) {
					t.Errorf("%v: the next token's logits differ", tier)
				}
				e.SeqRemove(0, 0, -1)
			}
			restoreInto(Host)
			if err := c.Save(context.Background(), last); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			c = open(t, o)
			restoreInto(Disk)
			restoreInto(Host)
		})
	}
}
