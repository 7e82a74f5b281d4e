// Package stream reads values in a text that arrives in pieces: whether a marker begins here or cannot be told yet
// (match.go), JSON byte by byte (json.go), and notations that models write for it, turned into JSON while they are read
// (loose.go). It knows no syntax, no tool and no call; package toolcall does.
//
// A function with an argument final may be told that no text follows. Without it, text that could become something else
// is left unread.
package stream
