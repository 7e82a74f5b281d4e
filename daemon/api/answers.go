package api

import (
	"fmt"
	"math/rand/v2"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Answers returns n copies of req, one for each answer to its prompt. Their seeds differ: a given seed counts up;
// without one each copy gets a random seed, because with --seed all answers would be equal. Their ids are id for the
// first answer of the HTTP request, then id-1, id-2, …; earlier is the number of its answers to other prompts.
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
