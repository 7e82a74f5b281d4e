package snapshot

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
)

// kvPerToken is a 135 M model's f16 cells: 30 layers × 3 heads × 64 × 2 (K, V) × 2 bytes.
const kvPerToken = 23040

// noise is a payload that does not compress, as cells do not.
var noise = func() []byte {
	b := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

func benchCache(b *testing.B, disk bool) *Cache {
	o := testOptions()
	o.RAMBytes = 512 << 20
	if disk {
		o.Dir, o.DiskBytes, o.QueueBytes = filepath.Join(b.TempDir(), "kv"), 4<<30, 1<<30
	}
	c := open(b, o)
	if disk && c.DiskError() != nil {
		b.Fatal(c.DiskError())
	}
	return c
}

func fill(b *testing.B, c *Cache, chat []Token, step int) (last Key) {
	for p := 0; p < len(chat); p += step {
		buf, err := c.Buffer(step * kvPerToken)
		if err != nil {
			b.Fatal(err)
		}
		for b := buf.Bytes(); len(b) > 0; b = b[copy(b, noise):] {
		}
		if last, err = c.Put(1, chat[:p+step], p, buf); err != nil {
			b.Fatal(err)
		}
	}
	return last
}

func BenchmarkLookup1024(b *testing.B) {
	c := benchCache(b, false)
	chat := text(0, 1024)
	fill(b, c, chat, 256)
	b.ReportAllocs()
	for b.Loop() {
		if m, _ := c.Lookup(1, chat); m.Tokens != 1024 {
			b.Fatal(m)
		}
	}
}

// BenchmarkPut measures the decode loop's cost of handing over a part of 256 tokens, eviction included.
func BenchmarkPut(b *testing.B) {
	c := benchCache(b, false)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		fill(b, c, text(1000*i, 256), 256)
		i++
	}
	b.ReportMetric(float64(c.Stats().Host.Evictions)/float64(b.N), "evictions/op")
}

// drain takes a whole match back.
func drain(b *testing.B, c *Cache, chat []Token) {
	m, ok := c.Lookup(1, chat)
	if !ok || m.Tokens != len(chat) {
		b.Fatalf("%+v", m)
	}
	woken := make(chan struct{}, 64)
	r, err := c.Fetch(m, func() { woken <- struct{}{} })
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for {
		switch _, s := r.Next(); s {
		case Done:
			return
		case Waiting:
			<-woken
		case Failed:
			b.Fatal(r.Err())
		}
	}
}

// BenchmarkFetchHost measures the cache's share of a restore of 1,024 tokens from memory (23.6 MB). No byte is copied.
func BenchmarkFetchHost(b *testing.B) {
	c := benchCache(b, false)
	chat := text(0, 1024)
	fill(b, c, chat, 256)
	b.ReportAllocs()
	for b.Loop() {
		drain(b, c, chat)
	}
}

// BenchmarkFetchDisk reads, verifies and hands out 1,024 tokens (23.6 MB) from files in the page cache.
func BenchmarkFetchDisk(b *testing.B) {
	c := benchCache(b, true)
	chat := text(0, 1024)
	if err := c.Save(context.Background(), fill(b, c, chat, 256)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(1024 * kvPerToken)
	for b.Loop() {
		b.StopTimer()
		c.Resize(0)
		c.Resize(512 << 20)
		b.StartTimer()
		drain(b, c, chat)
	}
}

// BenchmarkSave writes 1,024 tokens (23.6 MB) to disk, synced.
func BenchmarkSave(b *testing.B) {
	c := benchCache(b, true)
	i := 0
	b.SetBytes(1024 * kvPerToken)
	for b.Loop() {
		if err := c.Save(context.Background(), fill(b, c, text(10_000*i, 1024), 256)); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkHeap reports what a cache full of snapshots adds to the Go heap, whose size paces the collector.
func BenchmarkHeap(b *testing.B) {
	for b.Loop() {
		c := benchCache(b, false)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range 80 {
			fill(b, c, text(1000*i, 256), 256)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/1e6, "heap-MB")
		b.ReportMetric(float64(c.Stats().Host.Bytes)/1e6, "cached-MB")
		c.Close(context.Background())
	}
}
