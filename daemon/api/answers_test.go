package api

import (
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

func TestAnswers(t *testing.T) {
	req := wire.DefaultRequest()
	req.ID = "a"
	req.Sampling.Seed, req.Sampling.SeedSet = 7, true
	for i, r := range Answers(&req, "a", 0, 3) {
		if want := []string{"a", "a-1", "a-2"}[i]; r.ID != want || r.Sampling.Seed != uint64(7+i) {
			t.Errorf("answer %d: id %q, seed %d", i, r.ID, r.Sampling.Seed)
		}
	}
	if r := Answers(&req, "a", 3, 1)[0]; r.ID != "a-3" || r.Sampling.Seed != 7 {
		t.Errorf("an answer to another prompt: id %q, seed %d", r.ID, r.Sampling.Seed)
	}
	req.Sampling.SeedSet = false
	if Answers(&req, "a", 0, 1)[0].Sampling.SeedSet {
		t.Error("a single answer without a seed was given one: --seed would not hold")
	}
	if two := Answers(&req, "a", 0, 2); !two[0].Sampling.SeedSet || two[0].Sampling.Seed == two[1].Sampling.Seed {
		t.Errorf("two answers: seeds %d and %d", two[0].Sampling.Seed, two[1].Sampling.Seed)
	}
	if req.ID != "a" || req.Sampling.SeedSet {
		t.Error("the request itself was changed")
	}
}
