// Package frames is the client's half of the protocol, as pure functions over bytes: it writes the requests and
// questions that package ipc/wire reads, and reads the events that ipc/wire writes. The values are ipc/wire's;
// docs/protocol.md describes them.
//
// [AppendRequest], [AppendEmbed], [AppendCancel] and so on append one complete frame, its length included, to a buffer
// that the caller owns. Package ipc/wire/split cuts the server's bytes into payloads, and [Parser.ParseEvent] reads
// one. An event owns its memory, but the next ParseEvent into it reuses it. Nothing here is safe for concurrent use.
package frames
