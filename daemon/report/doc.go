// Package report makes the answers to questions about a daemon: values in, documents of package wire out. The daemon
// gathers the values, between two steps of the decode loop or beside a long one; nothing here waits for the loop.
//
// # Where things are
//
//	why.go        which requests a why question means, in which order
//	decisions.go  the decisions about one request, as sentences
//	kv.go         the pool, the tiers below it, and what is in them
//	health.go     which status a daemon has
//	facts.go      a model as API answers describe it, loaded or from its file
//	merge.go      the answers of several processes as one
//	dump.go       metrics on SIGUSR1, the loop's state after a broken invariant
package report
