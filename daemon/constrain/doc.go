// Package constrain makes answers obey grammars: a format that a request asks for (JSON, a schema, a regular
// expression, choices, a grammar) and the notation of tool calls. It knows no decode loop, no request and no
// connection; what it needs of them are arguments.
//
//	source.go      Sources: which grammars a request's answer needs, and which combinations are refused
//	cache.go       Cache: which grammars are compiled, cached and refused, by user
//	builds.go      which compilation runs now, and which requests wait for one
//	vocabulary.go  the tokens of a model as grammars read them
//	constraint.go  Constraint: the states of one answer, and which tokens need no logits row because only one can
//	               follow
//	mask.go        the mask of an answer's next token
//	calls.go       the states around the tool calls that a model begins by itself
//	turn.go        the grammar of a turn of a model whose messages have headers (gpt-oss)
//	worker.go      Masks: computes masks while the engine decodes
//	budget.go      how much computing of masks a user may cause
//
// A request passes through it in this order. Sources reads the request; Cache.Get compiles, in builder goroutines;
// New makes the Constraint, with Masks, which all constraints of a decode loop share. Around each token of the answer
// the loop calls
//
//   - Mask, before it samples a row,
//   - Accept, with the token that it sampled: whether the answer is complete, and whether tokens follow that need no
//     row (Forced),
//   - Follow, after the phase router and the parser of calls have read the token.
//
// A Constraint and its grammar's automaton belong to the loop; between Masks.Begin and Masks.End they belong to the
// mask worker.
package constrain
