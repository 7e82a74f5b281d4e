package grammar

import (
	"encoding/binary"
	"slices"
)

// unordered continues at an Unordered: a separator or a member comes, or it ends. The argument is the vector of what
// was seen, 0 before anything was.
func (a *automaton) unordered(t todo, in *instr) {
	n := len(in.members)
	if t.arg == 0 {
		a.vector = append(a.vector[:0], make([]int32, n+1)...)
		if in.keyed {
			a.vector = append(a.vector, 0) // see takenOf
		}
		t.arg = a.vectorOf(a.vector)
	}
	seen := a.counts[t.arg]
	sum := int(seen[n])
	owed := 0 // members that must still come
	for i, m := range in.members {
		owed += max(0, m.Min-int(seen[i]))
	}
	if in.op == opUnordered {
		if owed == 0 && sum >= in.min {
			a.work = append(a.work, todo{in.next, 0, t.k})
		}
		if sum > 0 {
			if (in.max < 0 || sum < in.max) && !a.fullOfKeys(in, seen) {
				for i := range in.members {
					if mayCome(in, seen, i, sum, owed) { // no separator without a member behind it
						member := t.pc - 1
						a.work = append(a.work, todo{in.to[0], 0, a.push(member, t.arg, t.k)})
						break
					}
				}
			}
			return
		}
	}
	unordered := t.pc
	if in.op == opMember {
		unordered = in.next
	}
	for i := range in.members {
		if !mayCome(in, seen, i, sum, owed) {
			continue
		}
		a.work = append(a.work, todo{in.to[1+i], 0, a.push(unordered+1+int32(i), t.arg, t.k)})
	}
}

// count adds member i to the vector of what an Unordered has seen. Counts stop where more make no difference.
func (a *automaton) count(in *instr, seen []int32, i int) []int32 {
	m, n := in.members[i], len(in.members)
	if m.Max >= 0 || int(seen[i]) < m.Min {
		seen[i]++
	}
	if in.max >= 0 || int(seen[n]) < max(1, in.min) {
		seen[n]++
	}
	return seen
}

// mayCome reports whether member i may be the next: its bound is not reached and those owed still fit.
func mayCome(in *instr, seen []int32, i, sum, owed int) bool {
	m := in.members[i]
	if m.Max >= 0 && int(seen[i]) >= m.Max {
		return false
	}
	if int(seen[i]) < m.Min {
		owed--
	}
	return in.max < 0 || sum+1+owed <= in.max
}

// vectorOf returns the number of a vector of counts; 0 is none.
func (a *automaton) vectorOf(counts []int32) int32 {
	key := a.key[:0]
	for _, c := range counts {
		key = binary.LittleEndian.AppendUint32(key, uint32(c))
	}
	a.key = key
	if v, ok := a.vectors[string(key)]; ok {
		return v
	}
	if len(a.counts) == 0 {
		a.counts = append(a.counts, nil)
	}
	if len(a.counts) > 4*a.g.limits.States {
		a.full, a.spoiled = a.full || a.err == nil, true
		a.fail("more than %d combinations of members (4 × Limits.States)", 4*a.g.limits.States)
	}
	v := int32(len(a.counts))
	a.counts = append(a.counts, slices.Clone(counts))
	a.vectors[string(key)] = v
	return v
}
