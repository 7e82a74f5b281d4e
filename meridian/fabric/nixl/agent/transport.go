package agent

import (
	"errors"
	"time"
)

// transport moves bytes between the pools of agents. libnixl_capi.so is one; the tests have another.
type transport interface {
	// Pool is the registered memory. Pull writes to it and peers read it.
	Pool() []byte
	// Base is the address of the pool's first byte, as a peer names it.
	Base() uint64
	// Metadata describes this agent and its pool to a peer.
	Metadata() []byte
	// Load takes a peer's metadata and returns its name for Read and Forget.
	Load(metadata []byte) (name string, err error)
	// Forget ends the connection to a peer, and with it every transfer from there.
	Forget(name string)
	// Read copies n bytes from a peer's address to the pool, from offset at on. It returns an error when the bytes have
	// not come before the deadline. stuck: the transfer may still write to the pool.
	Read(name string, address uint64, at, n int64, deadline time.Time) (stuck bool, err error)
	Close()
}

// errTransfer: a transfer failed or took too long.
var errTransfer = errors.New("transfer failed")
