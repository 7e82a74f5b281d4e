package daemon

import (
	"slices"
	"sync"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// leftOut are the notes of what an HTTP API has left out of requests that the poller has not read yet. They are no
// field of the protocol, in which a client could forge them.
type leftOut struct {
	mu    sync.Mutex
	notes map[string]wire.Notes // by the ids that the APIs have drawn
}

// put keeps the notes of requests until they are taken, or forget is called.
func (t *leftOut) put(requests []*wire.Request) (forget func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for _, r := range requests {
		if len(r.Notes) == 0 {
			continue
		}
		if t.notes == nil {
			t.notes = map[string]wire.Notes{}
		}
		t.notes[r.ID] = r.Notes
		ids = append(ids, r.ID)
	}
	if ids == nil {
		return func() {}
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, id := range ids {
			delete(t.notes, id)
		}
	}
}

// add adds the notes that wait for a request to those that it has, and forgets them.
func (t *leftOut) add(w *wire.Request) {
	t.mu.Lock()
	waiting := t.notes[w.ID]
	delete(t.notes, w.ID)
	t.mu.Unlock()
	for _, n := range waiting {
		if !slices.ContainsFunc(w.Notes, func(o wire.Note) bool { return o.Text == n.Text }) {
			w.Notes.Add(n)
		}
	}
}
