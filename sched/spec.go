package sched

import "time"

// Spec is the immutable part of a request that the scheduler reads. Preparation makes it once; the scheduler keeps the
// pointer from EvArrive until the request has ended. An attribute that the scheduler reads is added here, and the tags
// put it into both recordings: words into this package's, json into package core's.
type Spec struct {
	Class     Class  `json:"class,omitempty" words:"class,always"`
	Owner     uint32 `json:"owner" words:"owner,always"`  // peer uid, the fairness key
	Prompt    int    `json:"prompt" words:"prompt,min=1"` // tokens to compute before the first is sampled, ≥ 1
	MaxTokens int    `json:"max" words:"max,min=1"`       // most tokens to generate, ≥ 1
	// TTFT target, 0 = none; orders the prompts of one owner
	TargetTTFT time.Duration `json:"ttft,omitempty" words:"ttft"`
	TargetITL  time.Duration `json:"itl,omitempty" words:"itl"` // ITL target, 0 = the configured one
	// TTOT target, from the end of the thought to the answer's first token; 0 = none
	TargetTTOT time.Duration `json:"ttot,omitempty" words:"ttot"`
	// reject the request at once unless all its targets will be met (promise.go)
	Strict bool `json:"strict,omitempty" words:"strict"`
	// the caller wants a logits row of each prompt token: a step computes maxPromptRows of them at most
	PromptRows bool `json:"rows,omitempty" words:"rows"`
	// the prompt is computed in one slice, because its rows see each other in both directions. No request of such a
	// model generates
	Whole bool `json:"whole,omitempty" words:"whole"`
	// each row of the prompt has an output, of which a step has at most Config.EveryRows
	EveryRow bool `json:"every_row,omitempty" words:"every_row"`
	// the request ends at the prompt's last row: no token follows that needs a cell
	Fill bool `json:"fill,omitempty" words:"fill"`
}
