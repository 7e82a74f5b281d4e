// Package regex holds regular expressions over bytes as hash-consed expressions and matches them by derivatives.
//
// An expression is an index into its Set; equal expressions have equal indexes, so a derivative that was taken before
// is a lookup and the states of the automaton are the expressions themselves. Intersection, complement and counted
// repetition are ordinary operators: nothing is expanded before it is reached.
//
// Derivatives: Brzozowski, "Derivatives of Regular Expressions", JACM 11(4), 1964; Owens, Reppy and Turon,
// "Regular-expression derivatives re-examined", JFP 19(2), 2009, for the byte classes.
//
// A Set and what it holds belong to one goroutine at a time. Text is UTF-8 and matched byte by byte.
package regex

import "errors"

// Expr is an expression of a Set: an index that is meaningless in any other Set. The zero value is Nothing.
type Expr uint32

// Limits bounds one Set. A zero field takes its default.
type Limits struct {
	// Expressions is the most expressions the Set holds, those that matching adds included. Default 200,000 (about
	// 25 MB with their transitions).
	Expressions int
	// PatternBytes is the longest pattern that Parse reads, in bytes. Default 32 KiB.
	PatternBytes int
	// Depth is the deepest nesting of groups that Parse reads. Default 100.
	Depth int
	// Steps is the most derivatives that one question about emptiness may take (IsEmpty, and the dead states of
	// expressions with And or Not). Default 50,000.
	Steps int
	// Work is the most nodes that all such questions together may derive. Default 10,000,000, about half a second.
	Work int
}

const (
	defaultExpressions  = 200_000
	defaultPatternBytes = 32 << 10
	defaultDepth        = 100
	defaultSteps        = 50_000
	defaultWork         = 10_000_000
)

var (
	// ErrLimit wraps what exceeds a field of Limits; the error's text names the field.
	ErrLimit = errors.New("limit exceeded")
	// ErrStopped says that what was asked was broken off (Set.StopWhen).
	ErrStopped = errors.New("stopped")
	// ErrWork says that a question took more derivatives than WorkUntil allows.
	ErrWork = errors.New("too much work")
	// ErrSyntax wraps a pattern that is not one in its flavour.
	ErrSyntax = errors.New("syntax error")
	// ErrUnsupported wraps a construct of a flavour that no regular expression can express or that is not implemented;
	// the error's text names the construct.
	ErrUnsupported = errors.New("not supported")
)

// Flavour says how Parse reads a pattern.
type Flavour uint8

const (
	// ECMA is JSON schema's `pattern`: ECMA-262 with the u flag, matched anywhere in the text unless anchored. The
	// resulting expression describes the whole text.
	ECMA Flavour = iota
	// ECMAExact is ECMA where \s has all of ECMA-262's white space.
	ECMAExact
	// Whole is RE2 and Python syntax, matched against the whole text, as guided_regex and similar fields have it.
	Whole
)

// Unbounded is the max of a Repeat that has none.
const Unbounded = -1
