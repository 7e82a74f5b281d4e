// Package wire is the language spoken on uma-serve's socket, as pure functions over bytes: it opens nothing, waits
// for nothing, reads no clock and starts no goroutine. docs/protocol.md is its reference for people who write
// clients; the golden messages in testdata are its reference for machines.
//
// # The way of a message
//
// Package split tells the three protocols apart by a connection's first bytes and cuts what the socket delivers into
// payloads, or into lines of text. [Parse] turns a payload into a [Frame]: a generation request, a cancel, or an admin
// question. Answers are written by [AppendToken], [AppendEOS], [AppendError], [AppendProgress] and [AppendReport], each
// of which appends one complete frame, its length included, to a buffer the caller owns. The mirror image, for clients,
// is package client/frames.
//
// # Two kinds of errors
//
// A split.FrameError means that the position in the byte stream is lost: answer it, then close. A [RequestError] means
// that one whole frame cannot be served: answer it; the connection and its other requests live on. Both carry the
// protocol's [Code] and a text that names the field or the limit.
//
// # Caveats
//
//   - A parsed [Request] owns its memory.
//   - No type here is safe for concurrent use; each value belongs to one goroutine at a time.
//
// # Hostile input
//
// Every payload is first checked by a scanner of our own ([jsontext.Scan]): strict RFC 8259 without recursion, valid
// UTF-8, paired surrogates, bounded depth, bounded number of values. fastjson, which builds the tree afterwards,
// accepts more than JSON (NaN, raw control characters, "1-2"), spends about 100 bytes on each value and formats the
// unparsed tail of its input once per level; behind the scanner none of this can be reached.
//
// # Where things are
//
//	fields.go     the fields of a request and their ranges; fields_refused.go those that are refused or ignored
//	parameters.go the parameters of sampling, one line each for both sides
//	think.go      what a request may set about thinking
//	tools.go      tools of a request; format.go the format of its answer
//	inspect.go    the questions why and kv; package reports has the answers
package wire
