//go:build invariants

package ipc

// invariants: connections are checked after every event.
const invariants = true
