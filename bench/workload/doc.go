// Package workload makes the workloads of the benchmark: which requests, in what order, when. It reads no clock and no
// network; the same options and seed give the same plan on every machine.
//
// A Plan is a list of requests. One with At and no After is sent at its time whatever the server does (open loop); one
// with After is sent when that other request has ended (a turn of an agent, the next prompt of a client that works
// through a list); Workers > 0 instead takes the requests in their order, so many at a time (closed loop).
//
// # Open or closed
//
// A closed loop of n clients can never have more than n requests waiting: a slow server is asked less, and its queue
// looks short. People do not wait for each other; what they see of a loaded server is the open loop's.
//
// # Lengths
//
// Think and Output are the lengths a request is meant to have. A model ends when it likes: they are sent as limits,
// and, with Exact, as the length itself (the server is asked to ignore the end of generation). The replay mode's
// decoder obeys them to the token.
package workload
