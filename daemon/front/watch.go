package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// GET /models/sse: what becomes of the models, as server-sent events in the form of llama-server's router. The states
// are compared at an interval, so that nothing else in the front has to know of watchers.

const (
	// watchEvery is the interval at which a watcher's states are compared.
	watchEvery = 50 * time.Millisecond
	// watchQuiet is the longest time without a byte: then a comment is sent, which shows that the client is there.
	watchQuiet = 5 * time.Second
	// maxWatchers and userWatchers bound the clients that watch at once, of all users and of one.
	maxWatchers  = 64
	userWatchers = 8
	// watchWrite is the longest time for a client to take an event.
	watchWrite = 10 * time.Second
)

// watchers counts the clients that watch, by user.
type watchers struct {
	mu    sync.Mutex
	all   int
	users map[uint32]int
}

// enter counts a client of a user, unless there are too many.
func (c *watchers) enter(user uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == maxWatchers || c.users[user] == userWatchers {
		return false
	}
	if c.users == nil {
		c.users = map[uint32]int{}
	}
	c.all++
	c.users[user]++
	return true
}

func (c *watchers) leave(user uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.users[user]--; c.users[user] == 0 {
		delete(c.users, user)
	}
}

// modelEvent is an event of /models/sse.
type modelEvent struct {
	Model string           `json:"model"`
	Event string           `json:"event"`
	Data  *modelEventState `json:"data,omitempty"`
}

type modelEventState struct {
	Status   string         `json:"status"` // loading, loaded or unloaded
	Failed   bool           `json:"failed,omitempty"`
	Progress *modelProgress `json:"progress,omitempty"`
}

// modelProgress measures the reading of a file. A draft model is read first, as part of the same stage.
type modelProgress struct {
	Stages  []string `json:"stages"`
	Current string   `json:"current"`
	Value   float64  `json:"value"` // 0…1
}

// seen is a state of a model that a watcher was told.
type seen struct {
	status   string
	failed   bool
	progress float64
}

func (f *Front) serveModelEvents(w http.ResponseWriter, r *http.Request) {
	peer, _ := ipc.PeerOf(r.Context())
	owner := f.in.Access.OwnerOf(r, peer)
	if !f.watchers.enter(owner) {
		f.answerError(w, r, &wire.Error{Code: wire.SessionLimit, RetryAfter: time.Second, Message: fmt.Sprintf(
			"%d clients of this user watch the models already, or %d of all users", userWatchers, maxWatchers)})
		return
	}
	defer f.watchers.leave(owner)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	send := func(text []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(watchWrite)) // a connection without deadlines has the server's limits
		_, err := w.Write(text)
		return err == nil && rc.Flush() == nil
	}
	told := f.watched()
	if !send([]byte(": the models' states follow\n\n")) {
		return
	}
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-t.C:
		}
		now := f.watched()
		if now == nil { // the front ends
			return
		}
		text := changes(nil, told, now)
		told = now
		if len(text) == 0 && time.Since(last) > watchQuiet {
			text = []byte(":\n\n")
		}
		if len(text) > 0 {
			if last = time.Now(); !send(text) {
				return
			}
		}
	}
}

// watched returns the states of all models that were asked for, by label; nil: the front ends.
func (f *Front) watched() map[string]seen {
	out := map[string]seen{}
	if !f.call(func() {
		if f.draining {
			out = nil
			return
		}
		for _, m := range f.models {
			s := seen{status: m.state.served(), failed: m.state == down}
			if m.state == loading {
				s.progress = m.status.Progress
			}
			out[m.label()] = s
		}
	}) {
		return nil
	}
	return out
}

// changes appends the events of what has changed from one look to the next. A model that is new and not loaded is none.
func changes(dst []byte, was, is map[string]seen) []byte {
	for name, s := range is {
		old, known := was[name]
		if s == old || !known && s.status == unloaded.served() && !s.failed {
			continue
		}
		e := modelEvent{Model: name, Event: "model_status", Data: &modelEventState{Status: s.status, Failed: s.failed}}
		if s.progress > 0 {
			const text = "text_model"
			e.Data.Progress = &modelProgress{Stages: []string{text}, Current: text, Value: s.progress}
		}
		dst = append(dst, "data: "...)
		body, _ := json.Marshal(e) // of strings and numbers
		dst = append(append(dst, body...), "\n\n"...)
	}
	return dst
}
