// Package reports has the documents that a server answers to questions about itself: Health, and Info with
// the models and adapters served (status.go), why and kv (why_kv.go), and the live view (live.go). People ask them, not
// programs per token, so encoding/json writes and reads them; docs/protocol.md describes each field. Server and clients
// share the types. The questions are package wire's.
package reports
