package modelnews

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/models/download"
)

const (
	// watchEvery is the interval at which a watcher's states are compared, so that nothing else in the front has to
	// know of watchers.
	watchEvery = 50 * time.Millisecond
	// watchQuiet is the longest time without a byte: then a comment is sent, which shows that the client is there.
	watchQuiet = 5 * time.Second
	// watchWrite is the longest time for a client to take an event.
	watchWrite = 10 * time.Second

	maxRemoved = 64 // names that watchers are told, see Removals
)

// MaxWatchers and UserWatchers bound the clients that watch at once, of all users and of one.
const (
	MaxWatchers  = 64
	UserWatchers = 8
)

// Watchers counts the clients that watch, by user.
type Watchers struct {
	mu    sync.Mutex
	all   int
	users map[uint32]int
}

// Enter counts a client of a user, unless there are too many.
func (c *Watchers) Enter(user uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == MaxWatchers || c.users[user] == UserWatchers {
		return false
	}
	if c.users == nil {
		c.users = map[uint32]int{}
	}
	c.all++
	c.users[user]++
	return true
}

// Leave undoes Enter.
func (c *Watchers) Leave(user uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.users[user]--; c.users[user] == 0 {
		delete(c.users, user)
	}
}

// Removals are the newest names of deleted models.
type Removals struct {
	mu    sync.Mutex
	count int      // since the start
	names []string // the last ones, maxRemoved at most
}

// Add adds a name.
func (l *Removals) Add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.names = append(l.names, name)
	l.names = l.names[max(0, len(l.names)-maxRemoved):]
}

// since returns the names that were added after the first count ones, and how many there are now.
func (l *Removals) since(count int) ([]string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(l.count-count, len(l.names))
	return slices.Clone(l.names[len(l.names)-n:]), l.count
}

// Source has the states that a watcher is told.
type Source struct {
	Models    func() map[string]Seen // by label; nil: the front ends
	Downloads func() []download.State
	Removed   *Removals
	Reloads   func() int64 // how often the presets were read again
}

// Serve sends a client the news of models, until it leaves or the front ends.
func (s *Source) Serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	rc := http.NewResponseController(w)
	send := func(text []byte) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(watchWrite)) // a connection without deadlines has the server's limits
		_, err := w.Write(text)
		return err == nil && rc.Flush() == nil
	}
	told, downloads := s.Models(), Downloads{}
	_, removed := s.Removed.since(0)
	reloads := s.Reloads()
	begin := downloads.News([]byte(": the models' states follow\n\n"), downloads.Running(s.Downloads()))
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
		now := s.Models()
		if now == nil {
			return
		}
		text := downloads.News(States(nil, told, now), s.Downloads())
		told = now
		var gone []string
		for gone, removed = s.Removed.since(removed); len(gone) > 0; gone = gone[1:] {
			text = Event{Model: gone[0], Event: "model_remove"}.Append(text)
		}
		if n := s.Reloads(); n != reloads {
			reloads = n
			text = Event{Model: "*", Event: "models_reload"}.Append(text)
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
