package front

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/download"
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
	Status   string `json:"status,omitempty"` // downloading, loading, loaded or unloaded
	Failed   bool   `json:"failed,omitempty"`
	Progress any    `json:"progress,omitempty"` // *modelProgress, or wire.ServedDownload
	Error    string `json:"error,omitempty"`    // of a download
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
	told, downloads := f.watched(), downloadsTold{}
	_, removed := f.removed.since(0)
	begin := downloads.news([]byte(": the models' states follow\n\n"), downloads.running(f.downloads.List()))
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
		text := downloads.news(stateEvents(nil, told, now), f.downloads.List())
		told = now
		var gone []string
		for gone, removed = f.removed.since(removed); len(gone) > 0; gone = gone[1:] {
			text = appendEvent(text, modelEvent{Model: gone[0], Event: "model_remove"})
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

// stateEvents appends the events of what has changed from one look to the next. A model that is new and not loaded is
// none.
func stateEvents(dst []byte, was, is map[string]seen) []byte {
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
		dst = appendEvent(dst, e)
	}
	return dst
}

func appendEvent(dst []byte, e modelEvent) []byte {
	dst = append(dst, "data: "...)
	body, _ := json.Marshal(e) // of strings and numbers
	return append(append(dst, body...), "\n\n"...)
}

// downloadsTold are the events of downloads that a watcher has had, by the downloads' ids.
type downloadsTold map[string]toldDownload

type toldDownload struct {
	begun bool
	done  int64
	ended bool
}

// running returns the downloads that have not ended: a new watcher is told of those alone, the other ones it counts as
// known.
func (l downloadsTold) running(list []download.State) (out []download.State) {
	for _, d := range list {
		if d.Status.Runs() {
			out = append(out, d)
		} else {
			l[d.ID] = toldDownload{begun: true, ended: true}
		}
	}
	return out
}

// news appends the events of what is new of the downloads.
func (l downloadsTold) news(dst []byte, list []download.State) []byte {
	for i := range list {
		d := &list[i]
		t := l[d.ID]
		if t.ended {
			continue
		}
		if !t.begun {
			t.begun = true
			dst = appendEvent(dst, modelEvent{Model: d.Asked, Event: "model_status",
				Data: &modelEventState{Status: string(download.Downloading)}})
		}
		if done := d.Done(); len(d.Files) > 0 && done != t.done {
			t.done = done
			dst = appendEvent(dst, modelEvent{Model: d.Asked, Event: "download_progress",
				Data: &modelEventState{Progress: progressOf(d)}})
		}
		if !d.Status.Runs() {
			t.ended = true
			e := modelEvent{Model: d.Asked, Event: "download_finished"}
			if d.Status != download.Finished {
				e.Event, e.Data = "download_failed", &modelEventState{Error: d.Err.Text}
			}
			dst = appendEvent(dst, e)
		}
		l[d.ID] = t
	}
	known := map[string]bool{}
	for i := range list {
		known[list[i].ID] = true
	}
	maps.DeleteFunc(l, func(id string, _ toldDownload) bool { return !known[id] })
	return dst
}

// progressOf is a download's progress in the form of llama-server's router.
func progressOf(d *download.State) wire.ServedDownload {
	out := wire.ServedDownload{}
	for _, f := range d.Files {
		out[f.File] = wire.ServedFile{Done: f.Done, Total: f.Total}
	}
	return out
}
