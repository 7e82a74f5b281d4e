package front

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/front/modelnews"
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
	told, downloads := f.watched(), modelnews.Downloads{}
	_, removed := f.removed.since(0)
	reloads := f.reloads.Load()
	begin := downloads.News([]byte(": the models' states follow\n\n"), downloads.Running(f.downloads.List()))
	if !send(begin) {
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
		text := downloads.News(modelnews.States(nil, told, now), f.downloads.List())
		told = now
		var gone []string
		for gone, removed = f.removed.since(removed); len(gone) > 0; gone = gone[1:] {
			text = modelnews.Event{Model: gone[0], Event: "model_remove"}.Append(text)
		}
		if n := f.reloads.Load(); n != reloads {
			reloads = n
			text = modelnews.Event{Model: "*", Event: "models_reload"}.Append(text)
		}
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
func (f *Front) watched() map[string]modelnews.Seen {
	out := map[string]modelnews.Seen{}
	if !f.call(func() {
		if f.draining {
			out = nil
			return
		}
		for _, m := range f.models {
			s := modelnews.Seen{Status: m.state.served(), Failed: m.state == down}
			if m.state == loading {
				s.Progress = m.status.Progress
			}
			out[m.label()] = s
		}
	}) {
		return nil
	}
	return out
}
