//go:build cgo && (llama_engine || llama_system)

package llama

// #include "bridge.h"
import "C"

import (
	"unsafe"

	"github.com/uma-serve/uma-serve/runtime"
)

// TokenProb is a candidate of a sampler and its probability among the candidates.
type TokenProb struct {
	Token runtime.Token
	P     float32
}

// ReferenceSampler is llama.cpp's own sampler chain, in llama-server's order: penalties → top_n_sigma → top_k →
// typical_p → top_p → min_p → XTC → temperature → draw; or penalties → temperature → Mirostat. It is what the sampler
// package is tested against; serving does not use it. Not safe for concurrent use.
type ReferenceSampler struct {
	chain *C.struct_llama_sampler
	cand  []C.llama_token_data // scratch, one element per token of the vocabulary
}

// NewReferenceSampler makes a chain; Close frees it. An inactive stage of p is a stage that does nothing.
func NewReferenceSampler(p ReferenceParams) *ReferenceSampler {
	cp := C.llama_sampler_chain_default_params()
	cp.no_perf = true
	chain := C.llama_sampler_chain_init(cp)
	add := func(stage *C.struct_llama_sampler) { C.llama_sampler_chain_add(chain, stage) }
	add(C.uma_sampler_penalties(C.int32_t(p.VocabSize), C.int32_t(p.PenaltyLastN), C.float(p.RepeatPenalty),
		C.float(p.FrequencyPenalty), C.float(p.PresencePenalty)))
	switch p.Mirostat {
	case 1:
		add(C.llama_sampler_init_temp(C.float(p.Temperature)))
		add(C.llama_sampler_init_mirostat(C.int32_t(p.VocabSize), C.uint32_t(p.Seed), C.float(p.MirostatTau),
			C.float(p.MirostatEta), 100))
		return &ReferenceSampler{chain: chain}
	case 2:
		add(C.llama_sampler_init_temp(C.float(p.Temperature)))
		add(C.llama_sampler_init_mirostat_v2(C.uint32_t(p.Seed), C.float(p.MirostatTau), C.float(p.MirostatEta)))
		return &ReferenceSampler{chain: chain}
	}
	if p.TopNSigma > 0 {
		add(C.llama_sampler_init_top_n_sigma(C.float(p.TopNSigma)))
	}
	add(C.llama_sampler_init_top_k(C.int32_t(p.TopK)))
	if p.TypicalP > 0 {
		add(C.llama_sampler_init_typical(C.float(p.TypicalP), 1))
	}
	add(C.llama_sampler_init_top_p(C.float(p.TopP), 1))
	add(C.llama_sampler_init_min_p(C.float(p.MinP), 1))
	if p.XTCProbability > 0 {
		add(C.llama_sampler_init_xtc(C.float(p.XTCProbability), C.float(p.XTCThreshold), 1, C.uint32_t(p.Seed)))
	}
	if p.DynatempRange > 0 {
		add(C.llama_sampler_init_temp_ext(C.float(p.Temperature), C.float(p.DynatempRange),
			C.float(p.DynatempExponent)))
	} else {
		add(C.llama_sampler_init_temp(C.float(p.Temperature)))
	}
	add(C.llama_sampler_init_dist(C.uint32_t(p.Seed)))
	return &ReferenceSampler{chain: chain}
}

// apply runs a chain over a copy of logits and returns the remaining candidates.
func (s *ReferenceSampler) apply(chain *C.struct_llama_sampler, logits []float32) (cand []C.llama_token_data,
	selected int) {
	if len(s.cand) < len(logits) {
		s.cand = make([]C.llama_token_data, len(logits))
	}
	for i, l := range logits {
		s.cand[i] = C.llama_token_data{id: C.llama_token(i), logit: C.float(l)}
	}
	size := C.int64_t(len(logits))
	sel := C.uma_sample(chain, unsafe.SliceData(s.cand), &size)
	return s.cand[:size], int(sel)
}

// Sample draws a token and accepts it, so that the penalties of later calls see it. NoToken when there is none.
func (s *ReferenceSampler) Sample(logits []float32) runtime.Token {
	cand, i := s.apply(s.chain, logits)
	if i < 0 {
		return runtime.NoToken
	}
	t := runtime.Token(cand[i].id)
	s.Accept(t)
	return t
}

// Probs returns the candidates of the draw and their probabilities, most probable first where llama.cpp sorts them. No
// token is drawn or accepted.
func (s *ReferenceSampler) Probs(logits []float32) []TokenProb {
	chain := C.llama_sampler_clone(s.chain)
	defer C.llama_sampler_free(chain)
	cand, _ := s.apply(chain, logits)
	out := make([]TokenProb, len(cand))
	for i, c := range cand {
		out[i] = TokenProb{runtime.Token(c.id), float32(c.p)}
	}
	return out
}

// Accept tells the penalties that t was generated.
func (s *ReferenceSampler) Accept(t runtime.Token) {
	C.llama_sampler_accept(s.chain, C.llama_token(t))
}

// Close frees the chain.
func (s *ReferenceSampler) Close() {
	C.llama_sampler_free(s.chain)
	s.chain = nil
}
