package toolturns

import (
	"encoding/json"
	"slices"
	"sync"
)

// Limits of the responses that are kept for the next requests.
const (
	maxKept      = 256
	maxKeptBytes = 16 << 20
)

// kept is the state of a response for the request that continues from it. A restart loses it.
type kept struct {
	owner   uint32
	id      string // of the response, for the client
	last    string // of its last turn, for the model's process
	labels  []string
	pending []*call           // calls that wait for approval
	outputs []json.RawMessage // of calls after the last turn
	object  []byte
}

func (k *kept) bytes() (n int) {
	n = len(k.object)
	for _, o := range k.outputs {
		n += len(o)
	}
	for _, c := range k.pending {
		n += len(c.arguments)
	}
	return n
}

// store keeps the newest responses.
type store struct {
	mu    sync.Mutex
	list  []*kept // oldest first
	bytes int
}

// get returns a response of owner, nil if there is none.
func (s *store) get(owner uint32, id string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.list {
		if k.owner == owner && k.id == id {
			return k
		}
	}
	return nil
}

// put keeps a response; the oldest go.
func (s *store) put(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, k)
	s.bytes += k.bytes()
	for len(s.list) > maxKept || s.bytes > maxKeptBytes && len(s.list) > 0 {
		s.bytes -= s.list[0].bytes()
		s.list = s.list[1:]
	}
}

func (s *store) drop(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.list, k); i >= 0 {
		s.bytes -= k.bytes()
		s.list = slices.Delete(s.list, i, i+1)
	}
}
