// Package jinja runs the Jinja templates that models carry for rendering conversations.
//
// A chat template is a program inside a file from the internet. This package treats it as one: it runs in an
// interpreter whose every step, byte and level of nesting is counted (Limits), that has no way to files, network,
// environment or clock but what its caller passes in, and in which a template that asks for something unknown is
// an error that names the line, never an empty string.
//
// The language is Jinja2's as Hugging Face runs it: trim_blocks and lstrip_blocks on, autoescape off, a sandbox in
// which values cannot be changed (no list.append), loop controls, and {% generation %} blocks. Left out is what a
// template in a single file has no use for: inheritance, include and import, i18n, line statements. Behaviour is
// held against vectors made with Jinja2 3.1 (testdata/vectors.json, made by testdata/vectors.py).
//
// How it works: Compile lexes and parses to a small tree (lexer.go, parser.go, ast.go), Render walks it (exec.go
// for statements, eval.go for expressions, value.go for Python's idea of truth, equality and printing). Values are
// nil, bool, int64, float64, string, []any, Tuple, *Dict, Undefined and callables; nothing modifies one once made,
// so a Template may be rendered from many goroutines at once.
//
// Why not a library: docs/adr/0003-chat-templates.md.
package jinja
