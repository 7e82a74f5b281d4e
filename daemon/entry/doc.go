// Package entry is the part of a process that clients reach: listening sockets, poller, rules of access, HTTP server
// and the counters of connections. A front has an [Entry] and no model; a single process and an engine process have one
// beside the decode loop. Its handler and its routes decide what a request does.
//
//	entry.go     sockets, limits, start and stop
//	addresses.go what clients are told of the listening sockets
//	info.go      the part of info that every process has
//	metrics.go   the counters of connections as metrics
package entry
