package tiers

import (
	"github.com/uma-serve/uma-serve/daemon/hosttier"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
)

// HostBytes returns the bytes in the host tier, finished thoughts included, and how many parts have made room for
// others.
func (s *Stores) HostBytes() (bytes int64, evicted uint64) {
	if s.Cache == nil {
		return 0, 0
	}
	st := s.Cache.Stats()
	bytes = st.Host.Bytes + st.IdleBytes
	if s.memory != nil {
		bytes += s.memory.Bytes()
	}
	return bytes, st.Host.Evictions - st.Returned
}

// Resize gives the host tier another cap in bytes, finished thoughts included. Any goroutine.
func (s *Stores) Resize(bytes int64) {
	if s.Cache == nil {
		return
	}
	if s.memory != nil {
		room := bytes / thoughtShare
		s.memory.Resize(room)
		s.room.Store(room)
		bytes -= room
	}
	s.Cache.Resize(bytes)
}

// Cap returns the host tier's cap in bytes, finished thoughts included; 0 without a host tier.
func (s *Stores) Cap() int64 {
	if s.Cache == nil {
		return 0
	}
	return s.Cache.Stats().Host.Cap + s.room.Load()
}

// GiveBack returns a function that keeps the host tier within what the machine can spare, to be called now and then on
// one goroutine. memory reads the machine's memory; nil: the system's.
func (s *Stores) GiveBack(memory func() hostmem.Memory) func() {
	if memory == nil {
		memory = hostmem.Read
	}
	most := s.Cap()
	now := most
	return func() {
		held, _ := s.HostBytes()
		if n := hosttier.Budget(most, most, held, memory()); hosttier.Changed(now, n) {
			s.o.Log.Debug("the host tier's cap", "bytes", n, "held", held)
			s.Resize(n)
			now = n
		}
	}
}
