package kvsnap

// Resident is a sequence whose first tokens other requests can share.
type Resident struct {
	Seq Seq
	// Made changes when other tokens take the place of the sequence's. As long as it is the same, the sequence only
	// gets longer or shorter.
	Made   uint64
	NS     uint64
	Tokens []Token // computed and in the pool; valid until the next change of the tree
}

// Generation changes with every change of the tree.
func (t *Tree) Generation() uint64 { return t.generation }

// EachResident calls f for every sequence that holds cells which its namespace can share.
func (t *Tree) EachResident(f func(Resident)) {
	for i := range t.seqs {
		q := &t.seqs[i]
		if q.state == free {
			continue
		}
		if n := min(t.Whole(Seq(i)), q.limit); n > 0 {
			f(Resident{Seq: Seq(i), Made: q.made, NS: q.ns, Tokens: q.tokens[:n]})
		}
	}
}
