package tiers

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
)

// TestFrameTier: a frame has the tier of its cells; prompts, for which MRDN has none, have the one that goes first.
func TestFrameTier(t *testing.T) {
	for tier, want := range map[blocks.Tier]mrdn.Tier{
		blocks.Prefix: mrdn.ThinkComplete, blocks.ThinkComplete: mrdn.ThinkComplete,
		blocks.ThinkActive: mrdn.ThinkActive, blocks.OutputCritical: mrdn.OutputCritical,
	} {
		if got := frameTier(tier); got != want {
			t.Errorf("%v: %v, want %v", tier, got, want)
		}
	}
}

// TestZipper: KV bytes are compressed where that saves a quarter, and come back the same; damaged ones are refused.
func TestZipper(t *testing.T) {
	z := newZipper()
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	if z.compress(noise) != nil {
		t.Error("noise is compressed")
	}
	cells := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	small := bytes.Clone(z.compress(cells))
	if len(small) == 0 || len(small) > len(cells)/2 {
		t.Fatalf("%d of %d bytes", len(small), len(cells))
	}
	if got, err := z.unpack(small, int64(len(cells))); err != nil || !bytes.Equal(got, cells) {
		t.Errorf("%d bytes come back, %v", len(got), err)
	}
	for what, b := range map[string][]byte{"cut": small[:len(small)/2], "empty": nil, "another length": small} {
		size := int64(len(cells))
		if what == "another length" {
			size++
		}
		if _, err := z.unpack(b, size); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
