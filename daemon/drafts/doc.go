// Package drafts runs what guesses the next tokens of answers: a draft model (--draft-model), a second engine in the
// process, or a head: of the model's file (multi-token prediction, MTP) or of a separate one (EAGLE-3, DFlash). In each
// step, package sched decides which guesses it computes, and package core keeps its sequences; here it is opened,
// checked and run.
//
//	model.go  opening a draft model, its vocabulary, its part of a step, its part of info
//	head.go   the head, whose rows also read states: the model's, which are kept here, and the head's
package drafts
