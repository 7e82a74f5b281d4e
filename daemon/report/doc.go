// Package report makes the answers to questions about a daemon: values in, documents of package wire out. The daemon
// gathers the values, between two steps of the decode loop or beside a long one; no answer here waits for anything.
//
// # Where things are
//
//	why.go        which requests a why question means, in which order
//	decisions.go  the decisions about one request, as sentences
//	kv.go         the pool, the tiers below it, and what is in them
package report
