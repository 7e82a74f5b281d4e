package core

import (
	"github.com/uma-serve/uma-serve/kvsnap"
	"github.com/uma-serve/uma-serve/sched"
)

// Spec is the immutable part of a request. Preparation makes it once; core and the scheduler keep the pointer from
// Handle(Arrive) until the request has ended. An attribute that only core reads is added here, one that the scheduler
// reads in sched.Spec.
type Spec struct {
	sched.Spec // MaxTokens is 1 with Kind Embed and with Fill; Prompt + MaxTokens ≤ Config.Sched.Cells, see Request

	Kind      Kind `json:"kind,omitempty"`
	Shareable int  `json:"shareable,omitempty"` // leading tokens that are the system prompt: see kvsnap.Prompt
	// Salt divides the prefixes of the owner: requests share cells with those of the same owner and the same salt. 0 =
	// the owner's own.
	Salt uint64 `json:"salt,omitempty"`
	// Seals are the ends of the prompt's messages, in tokens, ascending: see kvsnap.Prompt.
	Seals []int `json:"seals,omitempty"`
	Keep  int   `json:"keep,omitempty"` // leading tokens that a context shift leaves alone
	// its next turn begins with its history as the chat template renders it (Step.Histories)
	Chat bool `json:"chat,omitempty"`
	// Speculate is the most tokens that a step computes on the guess that they follow, at most MaxGuess; 0 = none.
	Speculate int `json:"speculate,omitempty"`
	// MixFrom is the token of the prompt from which on its rows have the mix of adapters.
	MixFrom int `json:"mix_from,omitempty"`
	// Activated: the rows before MixFrom are as those of requests without adapters, whose salt is BaseSalt, and their
	// cells are shared with them. Salt tells requests of another MixFrom apart.
	Activated bool   `json:"activated,omitempty"`
	BaseSalt  uint64 `json:"base_salt,omitempty"`

	OneCall  bool `json:"-"` // the answer ends after its first call
	Resident int  `json:"-"` // leading tokens that are cached when it first starts: a recording's warm cache
}

// Space returns the namespace of the request's cells: its owner, or what preparation made of owner and salt.
func (s *Spec) Space() uint64 {
	if s.Salt != 0 {
		return s.Salt
	}
	return uint64(s.Owner)
}

// prompt returns the request's prompt as the prefix tree takes it.
func (r *Request) prompt() kvsnap.Prompt {
	p := kvsnap.Prompt{Req: uint64(r.ID), NS: r.Space(), Tokens: r.Tokens, Shareable: r.Shareable, NoWait: true}
	if r.Activated {
		if p.Base, p.BaseLen = r.BaseSalt, r.MixFrom; p.Base == 0 {
			p.Base = uint64(r.Owner)
		}
	}
	return p
}

// Kind says what a request computes.
type Kind uint8

const (
	// Generate: an answer, token by token.
	Generate Kind = iota
	// Embed: the hidden states of its prompt, of which the caller makes an embedding: of all rows with EveryRow, else
	// of the last one alone. Its rows have RowEmbedding instead of RowLogits, it shares no cells and leaves none, and
	// it ends by Embedded at its last row. When it is preempted it begins again.
	Embed
)
