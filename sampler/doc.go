// Package sampler turns a row of logits into a token, and tokens into text for a client.
//
// Params are a request's parameters, validated once. A Chain applies them for one session:
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
// The logits are read in the engine's memory and never written. Biases and penalties change a short list of tokens
// beside the row (Scratch), and every pass over the row skips those tokens.
//
// # Performance
//
// llama.cpp copies a row into an array of structs and sorts the part it needs. This package chooses the same tokens, as
// tests against llama.cpp's chain show, with less work:
//
//   - greedy: one pass, or none when the engine can find the largest logit itself (Chain.IsArgmax).
//   - top_k: one pass that compares each logit with the k-th largest so far. All later stages see k candidates.
//   - min_p alone: two passes: the largest logit, then those near enough to it.
//   - top_p without top_k: two passes, of which the second sums e^logit, most of the cost. A bound keeps the
//     candidates few, and they are selected by mass, not sorted.
//
// After an entropy probe of the row even less is read (Chain.SampleProbed).
//
// A session's state is small: its random source, its biases and, with penalties, the tokens of their window. TextStream
// turns tokens into text: whole UTF-8 characters, without stop strings.
package sampler
