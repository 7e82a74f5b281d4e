package sampler

import (
	"fmt"
	"slices"
)

// window holds the tokens that the penalties consider: the last n tokens as a ring, and the count of each as a list
// sorted by token. Its size grows with the tokens seen, not with the vocabulary or a client's repeat_last_n.
type window struct {
	on     bool
	ring   []int32 // empty when the whole context counts
	limit  int     // ring's final length; -1: no limit, no ring
	oldest int     // index in ring, once it is full
	// counts are sorted by id. Invariant: each n > 0, and with a limit they sum to len(ring).
	counts []tokenCount
}

type tokenCount struct {
	id, n int32
}

// windowRoom is the initial capacity of a window, in tokens.
const windowRoom = 256

func (w *window) init(lastN int) {
	w.on, w.limit = true, lastN
	room := windowRoom
	if lastN > 0 {
		room = min(lastN, windowRoom)
		w.ring = make([]int32, 0, room)
	}
	w.counts = make([]tokenCount, 0, room+1)
}

func (w *window) push(id int32) {
	if id < 0 {
		return
	}
	w.add(id, 1)
	switch {
	case w.limit < 0:
	case len(w.ring) < w.limit:
		w.ring = append(w.ring, id)
	default:
		w.add(w.ring[w.oldest], -1)
		w.ring[w.oldest] = id
		if w.oldest++; w.oldest == w.limit {
			w.oldest = 0
		}
	}
}

// add changes the count of id by n and removes entries of zero.
func (w *window) add(id, n int32) {
	i, found := slices.BinarySearchFunc(w.counts, id, func(c tokenCount, id int32) int { return int(c.id) - int(id) })
	if !found {
		w.counts = slices.Insert(w.counts, i, tokenCount{id, n})
		return
	}
	if w.counts[i].n += n; w.counts[i].n == 0 {
		w.counts = slices.Delete(w.counts, i, i+1)
	}
}

// penalise applies llama.cpp's penalties to the logit of a token that occurs n > 0 times in the window. The repetition
// penalty's paper (CTRL, arXiv 1909.05858) only divides; a negative logit must be multiplied, or the penalty would
// favour it.
func (p *Params) penalise(logit float32, n int32) float32 {
	if logit <= 0 {
		logit *= p.RepeatPenalty
	} else {
		logit /= p.RepeatPenalty
	}
	return logit - (float32(n)*p.FrequencyPenalty + p.PresencePenalty)
}

// check panics when an invariant is broken. Tests call it after every step.
func (w *window) check() {
	sum, last := 0, int32(-1)
	for _, c := range w.counts {
		if c.n <= 0 || c.id <= last {
			panic(fmt.Sprintf("sampler: count %d of token %d after token %d", c.n, c.id, last))
		}
		sum, last = sum+int(c.n), c.id
	}
	if w.limit >= 0 && sum != len(w.ring) {
		panic(fmt.Sprintf("sampler: counts of %d tokens in a window of %d", sum, len(w.ring)))
	}
}
