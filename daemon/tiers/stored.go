package tiers

import (
	"encoding/binary"

	"github.com/uma-serve/uma-serve/daemon/kvevents"
)

// StoredParts lists host memory and disk for KV events. It is called by one goroutine.
func (s *Stores) StoredParts() func(all bool) ([]kvevents.Part, bool) {
	if s.Cache == nil {
		return nil
	}
	var last any
	return func(all bool) ([]kvevents.Part, bool) {
		if all {
			last = nil
		}
		stored, now, changed := s.Cache.Stored(last)
		if last = now; !changed {
			return nil, false
		}
		parts := make([]kvevents.Part, len(stored))
		for i := range stored {
			h := &stored[i]
			parts[i] = kvevents.Part{Key: binary.LittleEndian.Uint64(h.Key[:]), NS: uint64(h.Namespace),
				Tokens: h.Tokens, Before: h.Before, Host: h.Host}
		}
		return parts, true
	}
}
