// Package syntax reads Jinja templates: Parse splits the text into tokens (lexer.go), as jinja2.lexer does with
// trim_blocks and lstrip_blocks, and builds a Tree of nodes (ast.go) in which every name knows the scopes that may hold
// its value. It resolves neither filters nor tests: package jinja looks their names up when a node runs.
//
// A template is a stranger's program. Its size (maxSource), its nesting (maxNesting) and the digits of its numbers
// (MaxDigits) are bounded, and each mistake is an Error that names the line. Inside, errors travel by panic, to the
// recover in Parse.
//
// inspect.go finds the names that a template reads and the words that it compares them with.
package syntax
