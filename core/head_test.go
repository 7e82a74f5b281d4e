package core

import (
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// headOf opens the head of eng with room for the tests of drafts.
func headOf(t *testing.T, eng runtime.Engine) runtime.Head {
	t.Helper()
	h, err := eng.(runtime.Headed).OpenHead(runtime.HeadOptions{ContextTokens: 1024, Batch: 64, Sequences: 4})
	if err != nil || h == nil {
		t.Fatalf("the head: %v, %v", h, err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// TestHeads: answers with a head are those without, and a head that knows the model is right as long as each of its
// rows follows the state of the row before.
func TestHeads(t *testing.T) {
	for name, states := range map[string]bool{"cells": false, "states": true} {
		t.Run(name, func(t *testing.T) {
			open := func(seed uint64) *fake.Engine {
				f := fake.Config{Seed: 1, Head: &fake.Head{Seed: seed}, NoRanges: states}
				f.ContextTokens, f.Batch, f.Sequences, f.Options.Head = 1024, 64, 24, true
				return fake.New(f)
			}
			eng := open(1)
			headsOn(t, eng, headOf(t, eng), headOf(t, open(2)), states)
		})
	}
}

// TestHeadsOfFiles: the same with a head of a file, which guesses a token or a block of them at a time.
func TestHeadsOfFiles(t *testing.T) {
	for name, c := range map[string]struct {
		block  int
		states bool
		shared bool
	}{"cells": {1, false, false}, "states": {1, true, false}, "blocks": {7, false, false},
		"blocks, states": {7, true, false}, "blocks of two": {2, false, false}, "long blocks": {MaxGuess, false, false},
		"of the model's cells": {0, false, true}, "of the model's cells, states": {0, true, true}} {
		t.Run(name, func(t *testing.T) {
			kind := &fake.Head{File: "file", Block: c.block, Shared: c.shared}
			f := fake.Config{Seed: 1, NoRanges: c.states, Head: kind}
			f.ContextTokens, f.Batch, f.Sequences = 1024, 64, 24
			eng := fake.New(f)
			open := func(seed uint64) runtime.Head {
				kind.Seed = seed
				h, err := eng.OpenHead(runtime.HeadOptions{ContextTokens: 1024, Batch: 64, Sequences: 4,
					File: &runtime.Options{ModelPath: "file"}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { h.Close() })
				return h
			}
			knows, random := open(1), open(2)
			headsOn(t, eng, knows, random, c.states)
		})
	}
}

// headsOn is draftsOn for heads: of a model with states only one request at a time is guessed.
func headsOn(t *testing.T, eng runtime.Engine, knows, random runtime.Head, alone bool) {
	if !alone {
		draftsOn(t, eng, knows, random)
		return
	}
	const tokens = 150
	want, _, _ := answered(t, eng, nil, 1, tokens)
	for name, h := range map[string]runtime.Head{"knows": knows, "random": random} {
		got, drafted, accepted := answered(t, eng, h, 1, tokens)
		t.Logf("%s: %d of %d guesses came true", name, accepted, drafted)
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: another answer", name)
		}
		if name == "knows" && (accepted < drafted*98/100 || drafted < tokens/2) || drafted == 0 {
			t.Errorf("%s: %d of %d guesses came true", name, accepted, drafted)
		}
	}
}
