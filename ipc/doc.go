// Package ipc serves uma-serve's sockets: one goroutine, the [Loop], accepts connections, reads requests and
// tells a [Handler] about them; the decode loop writes tokens to a [Conn] itself, without waking anybody.
//
// # Who owns what
//
//	Loop goroutine   file descriptors, read buffers, protocol state of every connection, timers
//	any goroutine    a Conn's output ring, its in-flight requests and its closed mark, under the Conn's mutex
//
// The mutex is held around a memory copy or one non-blocking write, never around a wait. A descriptor is closed by
// the Loop alone, after the Conn was marked closed under the mutex, and only at the end of a turn: so nobody writes
// to a number that meanwhile belongs to somebody else, and an event that was already fetched cannot hit a newcomer.
//
// # The way of a token
//
// [Conn.Send] copies a frame into the ring, [Conn.Flush] writes all of it with one system call that never blocks.
// What the socket does not take stays in the ring; Flush then arms write readiness itself (epoll_ctl works from any
// thread), and from there the Loop empties the ring while the decode loop computes. When the ring cannot hold a
// whole frame, Send says [Full] and takes nothing; [Handler.Writable] follows when the client has read half of it.
// A connection without requests in flight holds no buffer at all.
//
// # Three protocols on one socket
//
// wire.Sniff tells framed JSON, text lines and HTTP apart by a connection's first four bytes. An HTTP connection
// leaves the loop: it becomes a net.Conn of [Loop.HTTP], a net.Listener for an http.Server of the daemon.
//
// # Who gets a connection
//
// Config.MaxSessions connections are shared by users: see shares. A client that gets none, and one that comes when no
// descriptor is left (a few are reserved for that), is held until its first bytes show its protocol, told so, and
// counted by reason. A message that has begun has Config.MessageTimeout from its first byte.
//
// # TCP
//
// Beside the Unix socket a Loop serves TCP listeners, for HTTP alone. The kernel tells the user of a client that comes over
// the loopback address (internal/sockdiag); other clients come with Peer.Unknown set, count with their address, and the
// daemon's HTTP handlers decide about them. [Identified] moves a connection to the owner that a request has named.
//
// # How a client leaves
//
// A client that shuts down only its write side ("printf question | nc -N -U …") asks for nothing more but still
// reads: its running requests finish, then the connection closes. A client that closes has gone: its requests are
// cancelled through [Handler.Closed]. The kernel tells the two apart (EPOLLRDHUP against EPOLLHUP; EV_EOF on the
// read filter against the write filter). net/http does not tell them apart: httpConn hides the first from it. Nor does
// TCP: there the end of the stream is the end of the client.
package ipc
