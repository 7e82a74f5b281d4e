package core

import (
	"bytes"
	"testing"
)

// FuzzReplay: whatever a file holds, a replay ends with a count or an error.
func FuzzReplay(f *testing.F) {
	for seed := range uint64(4) {
		l, err := live(seed, 40)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(l.recording.Bytes())
		f.Add(bytes.ReplaceAll(l.recording.Bytes(), []byte("done"), []byte("next")))
	}
	f.Fuzz(func(t *testing.T, recording []byte) {
		if len(recording) > 1<<16 {
			t.Skip("longer than a fuzz target has time for")
		}
		Replay(recording)
	})
}
