package sim

// kind is an event's rank among those of the same tick.
type kind uint8

const (
	arrival kind = iota
	queued
	stepDue
	scheduled
	requestLeft
	timeout
	resumed // a client reads again
)

// event is one entry of the heap. It has no pointer, so the garbage collector does not scan the heap.
type event struct {
	at   int64  // microseconds
	key  uint64 // kind in the top byte, insertion number below: the order within a tick
	slot int32  // the request's place in Engine.slots
	gen  uint32 // the slot's generation: an event of a request that is gone is void
}

func (e *event) kind() kind { return kind(e.key >> 56) }

func (e *event) before(f *event) bool {
	return e.at < f.at || e.at == f.at && e.key < f.key
}

// heap is a binary min-heap of events.
type heap struct {
	ev  []event
	seq uint64
}

func (h *heap) push(at int64, k kind, slot int32, gen uint32) {
	h.seq++
	e := event{at, uint64(k)<<56 | h.seq, slot, gen}
	h.ev = append(h.ev, e)
	i := len(h.ev) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&h.ev[parent]) {
			break
		}
		h.ev[i] = h.ev[parent]
		i = parent
	}
	h.ev[i] = e
}

func (h *heap) pop() event {
	top := h.ev[0]
	n := len(h.ev) - 1
	e := h.ev[n]
	h.ev = h.ev[:n]
	if n == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && h.ev[child+1].before(&h.ev[child]) {
			child++
		}
		if !h.ev[child].before(&e) {
			break
		}
		h.ev[i] = h.ev[child]
		i = child
	}
	h.ev[i] = e
	return top
}
