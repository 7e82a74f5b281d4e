package sched

// mixes is a set of mixes of adapters.
type mixes [4]uint64

// add adds the mix of r and reports whether the set lacked it.
func (m *mixes) add(r *request) bool {
	word, bit := &m[r.spec.Mix/64], uint64(1)<<(r.spec.Mix%64)
	lacked := *word&bit == 0
	*word |= bit
	return lacked
}

// passes returns how many passes over the weights beyond the first a batch with all requests takes, nil ones left out:
// rows of different adapters are not computed together. A batch is sized as if each request that can run were in it.
// Most are, and a mix that a policy leaves to the next step makes this one shorter, not longer.
func passes(requests []*request) float64 {
	var seen mixes
	n := -1.0
	for _, r := range requests {
		if r != nil && !r.paused && seen.add(r) {
			n++
		}
	}
	return max(n, 0)
}
