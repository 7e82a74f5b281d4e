// Package sampler turns a row of logits into a token, and tokens into text a client may see.
//
// Params are a request's parameters, checked once at the edge. A Chain applies them for one session:
//
//	p := sampler.DefaultParams()
//	err := p.Validate()
//	chain := sampler.New(p, vocab, &scratch)
//	for _, t := range prompt {
//		chain.Accept(t)
//	}
//	for {
//		choice, err := chain.Sample(engine.Logits(row))
//		chain.Accept(choice.Token)
//		text, stopped := stream.Push(vocab.Piece(choice.Token))
//	}
//
// The logits are read where the engine left them and never written: what bias and penalties change is a short list
// beside the row (Scratch), and every pass over the row goes around the tokens in it.
//
// # How it is fast
//
// llama.cpp copies a row into an array of structs and sorts what it needs of it. The same tokens come out of less
// work, as tests against llama.cpp's own chain show:
//
//   - greedy: one pass, or none when the engine can find the largest logit itself (Chain.IsArgmax).
//   - top_k: one pass that compares each logit with the k-th largest so far. All later stages see k candidates.
//   - min_p alone: two passes, the largest logit and then those near enough to it.
//   - top_p without top_k: two passes, the second of which sums e^logit, most of the cost; a bound found before it
//     keeps the candidates few, and those are selected by their mass, not sorted.
//
// A row that the entropy probe has read already is read less (Chain.SampleProbed).
//
// A session's state is small: its random source, its biases, and, with penalties on, the tokens of their window.
// TextStream does the other half: whole UTF-8 characters, and no part of a stop string.
package sampler
