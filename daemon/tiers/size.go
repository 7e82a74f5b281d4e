package tiers

// Held returns the bytes in the host tier, finished thoughts included, and how many parts have made room for others.
func (s *Stores) Held() (bytes int64, evicted uint64) {
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
