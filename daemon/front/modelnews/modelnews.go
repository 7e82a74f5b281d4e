// Package modelnews writes the events of GET /models/sse: what has changed in the states of models and of downloads
// since a watcher was last told.
package modelnews

import (
	"encoding/json"
	"maps"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/models/download"
)

// Event is an event of /models/sse.
type Event struct {
	Model string `json:"model"`
	Event string `json:"event"`
	Data  *State `json:"data,omitempty"`
}

// State is the data of an Event.
type State struct {
	Status   string `json:"status,omitempty"` // downloading, loading, loaded or unloaded
	Failed   bool   `json:"failed,omitempty"`
	Progress any    `json:"progress,omitempty"` // *Progress, or reports.ServedDownload
	Error    string `json:"error,omitempty"`    // of a download
}

// Progress measures the reading of a file. A draft model is read first, as part of the same stage.
type Progress struct {
	Stages  []string `json:"stages"`
	Current string   `json:"current"`
	Value   float64  `json:"value"` // 0…1
}

// Seen is a state of a model that a watcher was told.
type Seen struct {
	Status   string // as in State
	Failed   bool
	Progress float64
}

// States appends the events of what has changed from one look to the next. A model that is new and not loaded is
// none.
func States(dst []byte, was, is map[string]Seen) []byte {
	for name, s := range is {
		old, known := was[name]
		if s == old || !known && s.Status == "unloaded" && !s.Failed {
			continue
		}
		e := Event{Model: name, Event: "model_status", Data: &State{Status: s.Status, Failed: s.Failed}}
		if s.Progress > 0 {
			const text = "text_model"
			e.Data.Progress = &Progress{Stages: []string{text}, Current: text, Value: s.Progress}
		}
		dst = e.Append(dst)
	}
	return dst
}

// Append appends e as an event of a stream.
func (e Event) Append(dst []byte) []byte {
	dst = append(dst, "data: "...)
	body, _ := json.Marshal(e) // of strings and numbers
	return append(append(dst, body...), "\n\n"...)
}

// Downloads are the events of downloads that a watcher has had, by the downloads' ids.
type Downloads map[string]told

// told is the part of a download that a watcher knows.
type told struct {
	begun bool
	done  int64
	ended bool
}

// Running returns the downloads that have not ended: a new watcher is told of those alone, the other ones it counts as
// known.
func (l Downloads) Running(list []download.State) (out []download.State) {
	for _, d := range list {
		if d.Status.Runs() {
			out = append(out, d)
		} else {
			l[d.ID] = told{begun: true, ended: true}
		}
	}
	return out
}

// News appends an event for each download that has changed since the last call.
func (l Downloads) News(dst []byte, list []download.State) []byte {
	for i := range list {
		d := &list[i]
		t := l[d.ID]
		if t.ended {
			continue
		}
		if !t.begun {
			t.begun = true
			dst = Event{Model: d.Asked, Event: "model_status",
				Data: &State{Status: string(download.Downloading)}}.Append(dst)
		}
		if done := d.Done(); len(d.Files) > 0 && done != t.done {
			t.done = done
			dst = Event{Model: d.Asked, Event: "download_progress",
				Data: &State{Progress: ProgressOf(d)}}.Append(dst)
		}
		if !d.Status.Runs() {
			t.ended = true
			e := Event{Model: d.Asked, Event: "download_finished"}
			if d.Status != download.Finished {
				e.Event, e.Data = "download_failed", &State{Error: d.Err.Text}
			}
			dst = e.Append(dst)
		}
		l[d.ID] = t
	}
	known := map[string]bool{}
	for i := range list {
		known[list[i].ID] = true
	}
	maps.DeleteFunc(l, func(id string, _ told) bool { return !known[id] })
	return dst
}

// ProgressOf returns a download's progress in the form of llama-server's router.
func ProgressOf(d *download.State) reports.ServedDownload {
	out := reports.ServedDownload{}
	for _, f := range d.Files {
		out[f.File] = reports.ServedFile{Done: f.Done, Total: f.Total}
	}
	return out
}
