package ring

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestRing holds a ring against a plain slice, and checks the promise drain rests on: bytes that First returned
// stay as they are, whatever is pushed, until they are consumed.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Ring
		var model []byte
		next := byte(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			seen := r.First()
			before := bytes.Clone(seen)
			for range rapid.IntRange(0, 3).Draw(t, "pushes") {
				b := make([]byte, rapid.IntRange(0, 3*minRing).Draw(t, "size"))
				for i := range b {
					b[i] = next
					next++
				}
				r.Push(b)
				model = append(model, b...)
				r.Check()
			}
			if !bytes.Equal(seen, before) {
				t.Fatal("bytes moved before they were consumed")
			}
			k := rapid.IntRange(0, len(seen)).Draw(t, "consume")
			r.Consume(k)
			r.Check()
			model = model[k:]
			if r.n != len(model) {
				t.Fatalf("%d bytes queued, want %d", r.n, len(model))
			}
		}
		for len(model) > 0 {
			b := r.First()
			if len(b) == 0 || !bytes.HasPrefix(model, b) {
				t.Fatalf("got %d bytes that do not continue the stream", len(b))
			}
			r.Consume(len(b))
			model = model[len(b):]
		}
		if r.n != 0 {
			t.Fatalf("%d bytes too many", r.n)
		}
	})
}
