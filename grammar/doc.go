// Package grammar restricts what a model may write to a context-free grammar over bytes, and says which tokens of a
// vocabulary may come next.
//
// A Builder makes a Grammar from regular expressions (package regex) and the operators of context-free grammars. A
// Matcher follows one text through it: Mask says which tokens may come, Accept takes one, Forced tells the bytes that
// must come. The language is exact: a terminal may end wherever its expression accepts, every way to read a text is
// followed at once, and no state is offered from which no text of the grammar can be reached.
//
// What is memoised, and why a mask is cheap:
//
//   - A state is a set of (expression, continuation) pairs, both hash-consed, so the same place in the grammar is the
//     same state whenever it comes back; its mask and its transitions are computed once.
//   - The tokens that stay inside an expression, and what is left of those that leave it, depend on the expression
//     alone: they are kept by Vocabulary for every grammar that has the expression (a JSON string's contents: every
//     schema).
//   - Tokens are a trie, walked once a state. Plain text (no quote, backslash or control character) is cut into slices
//     by its length in characters; a slice that an expression contains is one OR of a bitmap.
//
// A Key is the exception to what a context-free grammar can say: members of an Unordered that begin with different
// texts, which the states remember.
//
// A Grammar, its Matchers and their Vocabulary belong to one goroutine at a time: nothing here locks. Builders are
// independent of them, so grammars can be compiled elsewhere.
package grammar

import (
	"errors"

	"github.com/uma-serve/uma-serve/grammar/regex"
)

// Limits bounds one grammar, while it is built and while it is matched. A zero field takes its default.
type Limits struct {
	// Nodes is the most nodes and rules of the Builder. Default 200,000.
	Nodes int
	// Expressions is the most regular expressions, those that matching adds included. Default 200,000.
	Expressions int
	// States is the most states of the automaton that are kept; older ones are computed again. Default 20,000.
	States int
	// Threads is the most readings of a text that are followed at once. Default 4,096.
	Threads int
	// MaskBytes is the most memory of masks that are kept; older ones are computed again. Default 16 MiB.
	MaskBytes int
	// Work is the most steps that one mask may take to compute, and one text to accept: derivatives of expressions,
	// threads and places of the grammar looked at. Default 20,000,000, a few hundred milliseconds.
	Work int
	// Stop is asked now and then while a grammar is built, by its Builder and by what adds to it: once it reports true,
	// building fails with ErrStopped. It is not asked when texts are matched. nil: nothing stops it.
	Stop func() bool
}

const (
	defaultNodes       = 200_000
	defaultExpressions = 200_000
	defaultStates      = 20_000
	defaultThreads     = 4_096
	defaultMaskBytes   = 16 << 20
	defaultWork        = 20_000_000
)

var (
	// ErrLimit wraps what exceeds a field of Limits; the error's text names the field.
	ErrLimit = errors.New("grammar: limit exceeded")
	// ErrEmpty says that no text matches the grammar.
	ErrEmpty = errors.New("grammar: no text matches")
	// ErrLeftRecursion wraps the name of a rule that begins with itself in a way that is not direct.
	ErrLeftRecursion = errors.New("grammar: left recursion")
	// ErrUndefined wraps the name of a rule that is used and not defined.
	ErrUndefined = errors.New("grammar: rule is not defined")
	// ErrStopped says that Limits.Stop broke the building of a grammar off.
	ErrStopped = regex.ErrStopped
	// ErrRejected says that a token or text does not continue the grammar's texts.
	ErrRejected = errors.New("grammar: rejected")
)

// Unbounded is a max that there is none of.
const Unbounded = -1
