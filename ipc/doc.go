// Package ipc serves uma-serve's sockets. One goroutine, the [Loop], accepts connections, reads requests and calls a
// [Handler]. The decode loop writes tokens to a [Conn] itself, without waking another thread. A [Local] is a client
// within the process.
//
// # Ownership
//
//	Loop goroutine   file descriptors, read buffers, protocol state of every connection, timers
//	any goroutine    a Conn's send ring, its in-flight requests and its closed mark, under the Conn's mutex
//
// The mutex is held during a memory copy or one non-blocking write, never during a wait. Only the Loop closes a
// descriptor, after the Conn was marked closed under the mutex, and only at the end of a turn: no goroutine can write
// to a reused descriptor number, and an event fetched before cannot reach a new connection.
//
// # The path of a token
//
// [Conn.Send] copies a frame into the ring; [Conn.Flush] writes the ring with one non-blocking system call. Bytes that
// the socket does not take stay in the ring. Flush then arms write readiness (epoll_ctl works from any thread), and the
// Loop empties the ring while the decode loop computes. When the ring has no room for a whole frame, Send returns
// [Full] and takes nothing; [Handler.Writable] follows when the client has read half of the ring. A connection without
// requests in flight holds no buffer.
//
// # Three protocols on one socket
//
// split.Sniff tells framed JSON, text lines and HTTP apart by a connection's first four bytes. An HTTP connection
// leaves the loop: it becomes a net.Conn of [Loop.HTTP], a net.Listener for an http.Server of the daemon.
//
// # Refused connections
//
// Users share Config.MaxSessions connections: see package share. A refused client (no session, or no descriptor left; a
// few descriptors are reserved for this) is answered in its protocol once its first bytes show it, and counted by
// reason. A message must be complete within Config.MessageTimeout from its first byte.
//
// # TCP
//
// Besides the Unix socket a Loop serves TCP listeners, for HTTP only. The kernel knows the user of a client on the
// loopback address (ipc/sockdiag). Other clients have Peer.Unknown set and count by address; the daemon's HTTP
// handlers authenticate them. [Identified] moves a connection to the owner of a request's API key.
//
// # Disconnects
//
// A client that shuts down only its write side ("printf question | nc -N -U …") sends no more requests but still reads:
// its running requests finish, then the connection closes. When a client closes the socket, [Handler.Closed] cancels
// its requests. The kernel distinguishes the two cases (EPOLLRDHUP and EPOLLHUP; EV_EOF on the read filter and on the
// write filter). net/http does not, so httpConn hides the first case from it. Over TCP both look the same, and the end
// of the stream cancels.
//
// # Locks
//
// They are taken in this order: httpConn.mu, shares.mu, Conn.mu, Loop.mu. A Conn's connstate records are changed under
// its mutex. The Handler is called without any of them.
//
// # Where things are
//
//	handler.go    what a Loop asks of the daemon, and what it gives it
//	poll/         epoll and kqueue; sys/ other calls of the system
//	tlspipe/      TLS, which ends before the Loop
//	accept.go     which client gets a connection; package share: which one is displaced for it
//	rx.go         reading: how long a message may take
//	files.go      files that a client sends with a frame, with package rights
//	conn.go       sending, from a ring/
//	http.go       connections of net/http
//	pass.go, http_pass.go, link.go   how a connection gets from a front to an engine process and back
//	local.go      clients within the process: the HTTP handlers
package ipc
