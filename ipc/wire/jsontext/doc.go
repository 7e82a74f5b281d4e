// Package jsontext has the JSON of the wire below its fields: a scanner that checks a payload before a tree is built of
// it (scan.go), a look at one member of an object whose end may be missing (member.go), and appends of values to a
// frame (append.go), which allocate nothing when there is room: they run once per generated token. It knows no message.
package jsontext
