package memory_test

import (
	"testing"

	"pgregory.net/rapid"

	"context"
	"errors"

	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
	"github.com/uma-serve/uma-serve/meridian/fabric/memory"
)

func open(t testing.TB) fabric.Fabric {
	f, err := memory.New(memory.Label, 4*fabrictest.LargeBytes)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestConformance(t *testing.T) { fabrictest.Run(t, open) }
func BenchmarkFabric(b *testing.B) { fabrictest.Bench(b, open) }

// TestCap compares with a naive list: least recently used first, never above the cap, nothing else forgotten.
func TestCap(t *testing.T) {
	if _, err := memory.New(memory.Label, 0); err == nil {
		t.Error("a cap of 0 was taken")
	}
	rapid.Check(t, func(t *rapid.T) {
		const capBytes, entry = 2000, 160
		f, _ := memory.New(memory.Label, capBytes)
		type item struct {
			key  string
			size int
		}
		var model []item // most recent last
		remove := func(key string) (old item, was bool) {
			for i, m := range model {
				if m.key == key {
					model = append(model[:i:i], model[i+1:]...)
					return m, true
				}
			}
			return item{}, false
		}
		ctx := context.Background()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "key")
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				n := rapid.IntRange(0, 2100).Draw(t, "size")
				err := f.Push(ctx, key, make([]byte, n))
				if n+1+entry > capBytes {
					if !errors.Is(err, fabric.ErrTooLarge) {
						t.Fatalf("%d bytes: %v", n, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				remove(key)
				model = append(model, item{key, n})
				for sum := 0; ; {
					sum = 0
					for _, m := range model {
						sum += m.size + 1 + entry
					}
					if sum <= capBytes {
						break
					}
					model = model[1:]
				}
			case 2:
				got, err := f.Pull(ctx, key, nil)
				m, was := remove(key)
				if was {
					model = append(model, m)
				}
				if was != (err == nil) || was && len(got) != m.size || !was && !errors.Is(err, fabric.ErrNotFound) {
					t.Fatalf("%q: in the model %v, got %d bytes, %v", key, was, len(got), err)
				}
			case 3:
				remove(key)
				if err := f.Delete(ctx, key); err != nil {
					t.Fatal(err)
				}
			}
			if err := memory.Check(f); err != nil {
				t.Fatal(err)
			}
			if f.Len() != len(model) {
				t.Fatalf("%d values, want %d", f.Len(), len(model))
			}
		}
		f.Close()
		if f.Bytes() != 0 {
			t.Errorf("%d bytes after Close", f.Bytes())
		}
	})
}

// TestResize: a smaller cap forgets the oldest values, and refuses what is larger than it.
func TestResize(t *testing.T) {
	f, _ := memory.New(memory.Label, 4000)
	ctx := context.Background()
	for _, key := range []string{"a", "b", "c"} {
		if err := f.Push(ctx, key, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	f.Resize(2500)
	if _, err := f.Pull(ctx, "a", nil); !errors.Is(err, fabric.ErrNotFound) || f.Len() != 2 || f.Bytes() > 2500 {
		t.Errorf("%v, %d values of %d bytes", err, f.Len(), f.Bytes())
	}
	f.Resize(0)
	if f.Len() != 0 || f.Bytes() != 0 {
		t.Errorf("%d values of %d bytes", f.Len(), f.Bytes())
	}
	if err := f.Push(ctx, "a", nil); !errors.Is(err, fabric.ErrTooLarge) {
		t.Errorf("with no room: %v", err)
	}
	f.Resize(2000)
	if err := f.Push(ctx, "a", make([]byte, 1000)); err != nil {
		t.Error(err)
	}
}
