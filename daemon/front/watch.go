package front

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// GET /models/sse: what becomes of the models, as server-sent events in the form of llama-server's router. The states
// are compared at an interval, so that nothing else in the front has to know of watchers.

const (
	// watchEvery is the interval at which a watcher's states are compared.
	watchEvery = 50 * time.Millisecond
	// watchQuiet is the longest time without a byte: then a comment is sent, which shows that the client is there.
	watchQuiet = 5 * time.Second
	// maxWatchers bounds the clients that watch at once.
	maxWatchers = 64
	// watchWrite is the longest time for a client to take an event.
	watchWrite = 10 * time.Second
)

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

// modelProgress is how much of a file is read. A draft model is read first, as part of the same stage.
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
	if f.watchers.Add(1) > maxWatchers {
		f.watchers.Add(-1)
		f.answerError(w, r, &wire.Error{Code: wire.SessionLimit, RetryAfter: time.Second, Message: fmt.Sprintf(
			"%d clients watch the models already", maxWatchers)})
		return
	}
	defer f.watchers.Add(-1)
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
