// Package jinja runs the Jinja templates that models carry for rendering conversations.
//
// A chat template is a program inside a file from the internet. This package treats it as one: it runs in an
// interpreter whose every step, byte and level of nesting is counted (Limits), that has no way to files, network,
// environment or clock but what its caller passes in, and in which a template that asks for something unknown is
// an error that names the line, never an empty string.
//
// The language is Jinja2's as Hugging Face runs it: trim_blocks and lstrip_blocks on, autoescape off, a sandbox in
// which values cannot be changed (no list.append), loop controls, and {% generation %} blocks. What Jinja2 loads is
// loaded: an unknown filter or test, and what needs a second file (include, import, extends), fails when it is
// reached. Not supported are bytes, complex numbers, sets, \N{…} in strings, i18n and line statements, and what no chat
// template uses: arithmetic beyond 64 bits, the formats of % and specifications of .format, cycler, lipsum, and the
// filters and methods that filters.go and methods.go list. Each is an error that names it.
// Behaviour is compared with some 19,000 vectors made with Jinja2 3.1 (testdata/vectors.json.gz, made by
// testdata/vectors.py) and against its output for published templates (testdata/published).
//
// How it works: Compile has package syntax read the template into a small tree in which every name knows the scopes
// that may hold its value. Render walks it (exec.go for statements, eval.go for expressions, value.go for
// Python's idea of truth, equality and iteration, number.go for its numbers, print.go, format.go and json.go for how it
// prints). Values are nil, bool, int64, *big.Int, float64, string, markup, []any, Tuple, *Dict, views, ranges,
// generators, Undefined and callables. Nothing but a namespace, a generator or a loop changes once made, and
// those belong to one rendering, so a Template may be rendered from many goroutines at once. Inside, errors travel by
// panic, to the recover in Compile and Render.
//
// Limits are of two kinds. Steps bound time: nodes evaluated, items visited, and text looked at (scan). Bytes bound
// memory, charged before it is taken and, for scopes, given back.
//
// Why not a library: docs/adr/0003-chat-templates.md.
package jinja
