package api

import (
	"fmt"
	"math/rand/v2"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Answers returns n copies of req, one for each answer to its prompt. They differ in their seeds: a given seed counts up,
// otherwise each gets a random one, because --seed would make all answers equal. The copies' ids are id for the first of
// the HTTP request, then id-1, id-2, …; earlier is how many answers it has already, to other prompts.
func Answers(req *wire.Request, id string, earlier, n int) []*wire.Request {
	list := make([]*wire.Request, n)
	for i := range list {
		r := *req
		if k := earlier + i; k > 0 {
			r.ID = fmt.Sprintf("%s-%d", id, k)
		}
		if r.Sampling.SeedSet {
			r.Sampling.Seed += uint64(i)
		} else if n > 1 {
			r.Sampling.Seed, r.Sampling.SeedSet = rand.Uint64(), true
		}
		list[i] = &r
	}
	return list
}
