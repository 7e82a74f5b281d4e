// Package split cuts the bytes of a connection into messages, as pure functions: [Sniff] tells the three protocols
// apart by the first bytes, [Frames] cuts a framed connection into payloads for package wire, and [Lines] a newline
// connection into lines, which [ParseLine] reads.
//
// A [FrameError] means that the position in the byte stream is lost: answer it, then close. What Next of Frames and
// Lines returns is a view into the bytes given to that call or into their own buffer: it is valid until the next call
// and must not be modified. No type here is safe for concurrent use.
package split
