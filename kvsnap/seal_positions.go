package kvsnap

import "slices"

// Limits of SealPositions.
const (
	maxLateEnds  = 24 // ends of messages near the end of a prompt
	maxEarlyEnds = 4  // and near its beginning: the system prompt, and what follows it
	maxGrid      = 16 // multiples of the distance of seals
)

// SealPositions appends to dst, in descending order, the positions above from at which another process may have sealed
// the prefix tokens[:n] of a prompt: its end, the ends of messages (Prompt.Seals, ascending), and those distances from
// the start at which Acquire seals a prompt of which nothing is cached. There are at most 47. A process that resumed in
// the middle of a prompt seals at other distances as well, and one with many sequences seals a long prompt more often:
// those seals are not found.
func SealPositions(dst []int, n, from int, ends []int) []int {
	at := len(dst)
	add := func(pos int) {
		if pos > from && pos <= n && pos >= DefaultKeepMin {
			dst = append(dst, pos)
		}
	}
	add(n)
	late := max(0, len(ends)-maxLateEnds)
	for _, pos := range ends[late:] {
		add(pos)
	}
	for _, pos := range ends[:min(late, maxEarlyEnds)] {
		add(pos)
	}
	every := DefaultSealEvery
	for n/every > maxGrid { // Acquire doubles it as well
		every *= 2
	}
	add(DefaultSealEvery / 4)
	add(DefaultSealEvery / 2)
	for pos := every; pos < n; pos += every {
		add(pos)
	}
	slices.SortFunc(dst[at:], func(a, b int) int { return b - a })
	kept := slices.Compact(dst[at:])
	return dst[:at+len(kept)]
}
