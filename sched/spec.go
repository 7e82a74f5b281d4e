package sched

import "github.com/uma-serve/uma-serve/sched/slo"

// Spec is the immutable part of a request that the scheduler reads. Preparation makes it once; the scheduler keeps the
// pointer from EvArrive until the request has ended. An attribute that the scheduler reads is added here, and the tags
// put it into both recordings: words into this package's, json into package core's.
type Spec struct {
	Class     Class  `json:"class,omitempty" words:"class,always"`
	Owner     uint32 `json:"owner" words:"owner,always"`  // peer uid, the fairness key
	Prompt    int    `json:"prompt" words:"prompt,min=1"` // tokens to compute before the first is sampled, ≥ 1
	MaxTokens int    `json:"max" words:"max,min=1"`       // most tokens to generate, ≥ 1
	slo.Targets
	// the caller wants a logits row of each prompt token: a step computes maxPromptRows of them at most
	PromptRows bool `json:"rows,omitempty" words:"rows"`
	// the prompt is computed in one slice, because its rows see each other in both directions. No request of such a
	// model generates
	Whole bool `json:"whole,omitempty" words:"whole"`
	// Blocks are pairs of positions in the prompt, ascending: the rows from the first to before the second see each
	// other, so that one slice computes them all
	Blocks []int `json:"blocks,omitempty" words:"blocks"`
	// each row of the prompt has an output, of which a step has at most Config.EveryRows
	EveryRow bool `json:"every_row,omitempty" words:"every_row"`
	// the request ends at the prompt's last row: no token follows that needs a cell
	Fill bool `json:"fill,omitempty" words:"fill"`
	// Mix is the mix of adapters of its rows, 0 = none. A step has a pass over the weights for each mix in it.
	Mix uint8 `json:"mix,omitempty" words:"mix"`
}

// cutBlock returns how many tokens a slice from position from on may have instead of n: it ends before a block that n
// would cut in two, or behind it where the block is its beginning.
func (s *Spec) cutBlock(from, n int) int {
	for i := 0; i+1 < len(s.Blocks) && n > 0; i += 2 {
		begin, end := s.Blocks[i], s.Blocks[i+1]
		switch to := from + n; {
		case begin >= to:
			return n
		case end <= to || end <= from:
			continue
		case begin > from:
			return begin - from
		default:
			return end - from
		}
	}
	return n
}
