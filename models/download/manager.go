package download

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/models/pull"
)

// Limits of downloads.
const (
	MaxRunning = 4  // at once
	MaxWaiting = 16 // for one of those to end
	maxEnded   = 64 // that are remembered
)

// Status is the stage of a download.
type Status string

// The stages of a download. It has not ended in Waiting and Downloading.
const (
	Waiting     Status = "waiting"
	Downloading Status = "downloading"
	Finished    Status = "finished"
	Failed      Status = "failed"
	Canceled    Status = "canceled"
)

// Runs reports whether a download has not ended.
func (s Status) Runs() bool { return s == Waiting || s == Downloading }

// State is a copy of a download's state.
type State struct {
	ID      string // of the download, for questions about it
	Name    string // as package pull reads it
	Asked   string // as the first client has written it
	Status  Status
	Choice  *Choice    // nil: the name is not resolved yet; not to be changed
	Files   []Progress // those that have begun, in order
	Note    string     // the newest sentence about a retry or a wait
	Started time.Time
	Ended   time.Time // zero while it runs
	Speed   float64   // bytes a second, of the last seconds
	Result  *Done     // of a finished one
	Err     *Failure  // of a failed or canceled one
}

// Done returns the number of bytes that are here, Total that of all files; 0 while it is not known.
func (s *State) Done() (n int64) {
	for _, f := range s.Files {
		n += f.Done
	}
	return n
}

// Total returns the number of bytes of all files; 0 while it is not known.
func (s *State) Total() int64 {
	if s.Choice == nil {
		return 0
	}
	return s.Choice.Bytes
}

// Config has the functions that a Manager calls.
type Config struct {
	// Pull downloads a model; every error is a *Failure. Program.Pull does it in a process.
	Pull func(ctx context.Context, job Job, tell func(*Event)) (*Done, error)
	// Job returns the job of a name: the directory and the hub's address and token at this moment. An error refuses
	// the download.
	Job func(name string) (Job, error)
	// Arrived is called when a model is here, before its download counts as finished.
	Arrived func(*Done)
	Now     func() time.Time // nil = time.Now
}

// Manager runs downloads, each name once. It is safe for concurrent use.
type Manager struct {
	cfg   Config
	ctx   context.Context
	end   context.CancelFunc
	wg    sync.WaitGroup
	slots chan struct{} // one for each download that runs

	mu     sync.Mutex
	list   []*download // in the order of their start
	counts Counts
	closed bool
}

// Counts are numbers since the start.
type Counts struct {
	Running, Waiting           int // now
	Finished, Failed, Canceled int
	Bytes                      int64 // of the finished ones
}

// download is one download.
type download struct {
	key    string             // constant
	cancel context.CancelFunc // constant
	done   chan struct{}      // closed at the end

	// Under Manager.mu.
	State
	holders  int  // tickets that are not released
	keep     bool // it continues without holders
	canceled bool
	changed  chan struct{} // closed at the next change
	meter    meter
}

// NewManager returns a Manager. Close ends it.
func NewManager(cfg Config) *Manager {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Manager{cfg: cfg, slots: make(chan struct{}, MaxRunning)}
	m.ctx, m.end = context.WithCancel(context.Background())
	return m
}

// Close cancels every download and waits for the processes.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	m.wg.Wait()
}

// Key returns what a name has in common with other spellings of it. The error is a *Failure.
func Key(name string) (string, error) {
	ref, err := pull.Parse(name)
	if err != nil {
		return "", failureOf(err)
	}
	return strings.ToLower(ref.String()), nil
}

// RouterName returns the name of a download that is written as for llama-server's router, where OWNER/REPOSITORY is
// Hugging Face's.
func RouterName(name string) string {
	first, rest, ok := strings.Cut(name, "/")
	if ok && !strings.Contains(rest, "/") && !strings.ContainsAny(first, ".:") {
		return "hf.co/" + name
	}
	return name
}

// Start begins the download of a model, or joins the one that runs. asked is the name as the client has written it.
// keep: the download continues when every ticket is released. The caller releases the ticket. Errors are *Failure.
func (m *Manager) Start(name, asked string, keep bool) (*Ticket, error) {
	key, err := Key(name)
	if err != nil {
		return nil, err
	}
	job, err := m.cfg.Job(name)
	if err != nil {
		if f, ok := errors.AsType[*Failure](err); ok {
			return nil, f
		}
		return nil, &Failure{KindOther, err.Error()}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, failure(KindCanceled, "the server is shutting down; ask again when it is back")
	}
	if d := m.running(key); d != nil {
		d.holders++
		d.keep = d.keep || keep
		return &Ticket{m: m, d: d, Joined: true}, nil
	}
	if m.counts.Running+m.counts.Waiting >= MaxRunning+MaxWaiting {
		return nil, failure(KindBusy, "%d downloads run and %d wait; ask again when one has ended", m.counts.Running,
			m.counts.Waiting)
	}
	ctx, cancel := context.WithCancel(m.ctx)
	d := &download{key: key, cancel: cancel, done: make(chan struct{}), holders: 1, keep: keep,
		changed: make(chan struct{}),
		State:   State{ID: newID(), Name: name, Asked: asked, Status: Waiting, Started: m.cfg.Now()}}
	m.list = append(m.list, d)
	m.counts.Waiting++
	m.wg.Go(func() { m.run(ctx, d, job) })
	return &Ticket{m: m, d: d}, nil
}

// running returns the download of a key that has neither ended nor been canceled.
func (m *Manager) running(key string) *download {
	for _, d := range m.list {
		if d.key == key && d.Status.Runs() && !d.canceled {
			return d
		}
	}
	return nil
}

// run carries out a download.
func (m *Manager) run(ctx context.Context, d *download, job Job) {
	defer d.cancel()
	done, err := (*Done)(nil), error(failure(KindCanceled, "the download of %s was canceled", d.Name))
	select {
	case m.slots <- struct{}{}:
		m.change(d, func() {
			d.Status = Downloading
			m.counts.Waiting--
			m.counts.Running++
		})
		if ctx.Err() == nil {
			done, err = m.cfg.Pull(ctx, job, func(e *Event) { m.change(d, func() { m.hear(d, e) }) })
		}
		if err == nil && m.cfg.Arrived != nil {
			m.cfg.Arrived(done)
		}
		<-m.slots
	case <-ctx.Done():
	}
	m.change(d, func() { m.ended(d, done, err) })
	close(d.done)
}

// change changes a download and wakes those that watch it.
func (m *Manager) change(d *download, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(d.changed)
	d.changed = make(chan struct{})
}

// hear takes an event. Caller holds mu.
func (m *Manager) hear(d *download, e *Event) {
	switch {
	case e.Chosen != nil:
		d.Choice = e.Chosen
	case e.Progress != nil:
		i := slices.IndexFunc(d.Files, func(p Progress) bool { return p.File == e.Progress.File })
		if i < 0 && len(d.Files) < maxFiles {
			i, d.Files = len(d.Files), append(slices.Clip(d.Files), *e.Progress)
			d.meter.begin(m.cfg.Now(), d.State.Done())
		}
		if i >= 0 {
			files := slices.Clone(d.Files) // copies of the state have the old ones
			files[i], d.Files = *e.Progress, files
		}
		d.Speed = d.meter.speed(m.cfg.Now(), d.State.Done())
	case e.Note != "":
		d.Note = e.Note
	}
}

// ended records the end of a download. Caller holds mu.
func (m *Manager) ended(d *download, done *Done, err error) {
	if d.Status == Downloading {
		m.counts.Running--
	} else {
		m.counts.Waiting--
	}
	d.Ended, d.Speed, d.Note = m.cfg.Now(), 0, ""
	failed, _ := errors.AsType[*Failure](err)
	switch {
	case err == nil:
		d.Status, d.Result = Finished, done
		m.counts.Finished++
		m.counts.Bytes += done.Bytes
	case d.canceled || failed != nil && failed.Kind == KindCanceled:
		d.Status, d.Err = Canceled, failed
		m.counts.Canceled++
	default:
		d.Status, d.Err = Failed, failed
		m.counts.Failed++
	}
	if d.Err == nil && err != nil {
		d.Err = &Failure{KindOther, err.Error()}
	}
	over := -maxEnded
	for _, o := range m.list {
		if !o.Status.Runs() {
			over++
		}
	}
	m.list = slices.DeleteFunc(m.list, func(o *download) bool {
		if over <= 0 || o.Status.Runs() {
			return false
		}
		over--
		return true
	})
}

// Cancel ends the download of a name, and waits until its process has ended or ctx ends. What has arrived is kept.
// false: none runs.
func (m *Manager) Cancel(ctx context.Context, name string) bool {
	key, err := Key(name)
	if err != nil {
		return false
	}
	m.mu.Lock()
	d := m.running(key)
	if d != nil {
		d.canceled = true
	}
	m.mu.Unlock()
	if d == nil {
		return false
	}
	d.cancel()
	select {
	case <-d.done:
	case <-ctx.Done():
	}
	return true
}

// List returns the downloads that run and the last that have ended, in the order of their start.
func (m *Manager) List() []State {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]State, len(m.list))
	for i, d := range m.list {
		out[i] = d.State
	}
	return out
}

// Counts returns the numbers since the start.
func (m *Manager) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// Ticket is a client's part in a download.
type Ticket struct {
	Joined bool // the download was running already

	m *Manager
	d *download
}

// State returns the download's state, and a channel that is closed when it has changed.
func (t *Ticket) State() (State, <-chan struct{}) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return t.d.State, t.d.changed
}

// Release gives the ticket back: a download that nothing keeps and that has no ticket is canceled.
func (t *Ticket) Release() {
	t.m.mu.Lock()
	t.d.holders--
	gone := t.d.holders == 0 && !t.d.keep && t.d.Status.Runs()
	if gone {
		t.d.canceled = true
	}
	t.m.mu.Unlock()
	if gone {
		t.d.cancel()
	}
}

// newID returns a random id of a download.
func newID() string {
	var b [5]byte
	_, _ = rand.Read(b[:])
	return "job_" + hex.EncodeToString(b[:])
}

// speedTime is the time over which a speed is averaged.
const speedTime = 5 * time.Second

// meter measures a speed, not counting what was on the disk before.
type meter struct {
	at    time.Time
	bytes int64
	rate  float64
}

// begin starts a measurement at a time, with so many bytes.
func (s *meter) begin(now time.Time, bytes int64) { s.at, s.bytes = now, bytes }

// speed returns the bytes a second up to now.
func (s *meter) speed(now time.Time, bytes int64) float64 {
	if passed := now.Sub(s.at).Seconds(); passed > 0 {
		weight := min(1, passed/speedTime.Seconds())
		s.rate += weight * (float64(max(bytes-s.bytes, 0))/passed - s.rate)
		s.at, s.bytes = now, bytes
	}
	return s.rate
}
