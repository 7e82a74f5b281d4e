// Package batches answers many requests of a client in the background, as OpenAI's and Anthropic's batch APIs have it:
// the requests come at once, run beside those of others and below them, and their answers are read when all are there.
// Batches go on after a restart where they were.
package batches

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/files"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Limits of a Runner.
const (
	MaxLines      = 50_000   // requests of a batch, as in OpenAI's API
	MaxLine       = 16 << 20 // bytes of a request
	MaxBytes      = 256 << 20
	MaxRunning    = 32      // batches of a user that are not over
	MaxKept       = 200     // batches of a user, those that are over included
	MaxOwnerBytes = 1 << 30 // requests and answers of a user's batches
	MaxAllBytes   = 8 << 30 // those of all users
	Slots         = 4       // requests of all batches at a time
	Window        = 24 * time.Hour
	keptFor       = 29 * 24 * time.Hour // after the end; Anthropic keeps results so long
	maxAnswer     = 32 << 20            // bytes of an answer
	maxCustom     = 512                 // bytes of a custom_id
	firstRetry    = time.Second
	longestRetry  = 30 * time.Second
	maxLost       = 3 // processes that end while they answer the same request
)

// Status of a batch.
type Status string

const (
	Failed     Status = "failed" // its requests are no requests, or its results cannot be kept
	InProgress Status = "in_progress"
	Canceling  Status = "cancelling"
	Canceled   Status = "cancelled"
	Completed  Status = "completed"
	Expired    Status = "expired" // it was not over within its window
)

func (s Status) over() bool { return s != InProgress && s != Canceling }

// Batch is the state of a batch, as it is on disk.
type Batch struct {
	ID        string          `json:"id"`
	Owner     uint32          `json:"owner"`
	Anthropic bool            `json:"anthropic,omitempty"`
	Endpoint  string          `json:"endpoint"`
	Input     string          `json:"input,omitempty"` // file of OpenAI's requests
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Status    Status          `json:"status"`
	Created   int64           `json:"created"` // seconds since 1970
	Expires   int64           `json:"expires"`
	Canceled  int64           `json:"cancelled,omitempty"` // when it was asked for
	Ended     int64           `json:"ended,omitempty"`
	Output    string          `json:"output,omitempty"` // files of the results
	Errors    string          `json:"errors,omitempty"`
	Faults    []Fault         `json:"faults,omitempty"` // of a failed batch
	Counts    Counts          `json:"counts"`
	Bytes     int64           `json:"bytes,omitempty"` // of its requests and answers that are kept here
}

// Counts are requests of a batch.
type Counts struct {
	Total     int `json:"total"`
	Succeeded int `json:"succeeded"`
	Errored   int `json:"errored"`
	Canceled  int `json:"cancelled"`
	Expired   int `json:"expired"`
}

// Done returns the number of requests that are over.
func (c *Counts) Done() int { return c.Succeeded + c.Errored + c.Canceled + c.Expired }

// Fault describes a line of the requests that cannot run.
type Fault struct {
	Line    int    `json:"line"` // from 1
	Code    string `json:"code"`
	Message string `json:"message"`
}

// line is a request of a batch on disk.
type line struct {
	ID   string          `json:"custom_id"`
	Body json.RawMessage `json:"body"`
}

// Result is the outcome of a request: an answer, or why there is none.
type Result struct {
	ID      string          `json:"custom_id"`
	Status  int             `json:"status,omitempty"`  // of HTTP; 0: it did not run
	Body    json.RawMessage `json:"body,omitempty"`    // the answer, JSON
	Outcome string          `json:"outcome,omitempty"` // cancelled or expired
}

// ErrLost is the error of an Ask whose model's process ended while it had the request.
var ErrLost = errors.New("the model's process ended")

// Ask answers a request of an owner to a path of an HTTP API. The caller closes the answer's body.
type Ask func(ctx context.Context, owner uint32, path string, header http.Header, body []byte) (*http.Response, error)

// Options are the parts of a Runner.
type Options struct {
	Dir string
	Ask Ask
	// Keep stores results as a file of the owner, and returns its id.
	Keep func(owner uint32, name string, r io.Reader) (id string, err error)
	Log  *slog.Logger
	Now  func() time.Time
}

// Runner runs the batches of a daemon. It is safe for concurrent use.
type Runner struct {
	Options
	slots  chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu      sync.Mutex
	batches map[string]*running
	begun   map[uint32]int    // batches by owner whose requests are being read
	counts  map[string]uint64 // requests by outcome, since the start
}

// running is a batch and what runs of it.
type running struct {
	mu     sync.Mutex
	b      Batch
	cancel context.CancelFunc // ends its requests; nil: none runs
}

var idForm = regexp.MustCompile(`^(batch_|msgbatch_)[0-9a-f]{24}$`)

// Open reads the folder and continues with the batches that are not over, until Close.
func Open(o Options) (*Runner, error) {
	r := &Runner{Options: o, slots: make(chan struct{}, Slots), batches: map[string]*running{},
		begun: map[uint32]int{}, counts: map[string]uint64{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, err
	}
	unread := map[string]bool{}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !idForm.MatchString(id) {
			continue
		}
		var b Batch
		text, err := os.ReadFile(filepath.Join(o.Dir, e.Name()))
		if err == nil {
			err = json.Unmarshal(text, &b)
		}
		if err != nil || b.ID != id {
			o.Log.Warn("a batch cannot be read; its files stay", "file", e.Name(), "error", err)
			unread[id] = true
			continue
		}
		if b.Status.over() && b.Ended+int64(keptFor/time.Second) < o.Now().Unix() {
			r.drop(id)
			continue
		}
		if b.Status.over() {
			r.tidy(&b)
		}
		r.batches[id] = &running{b: b}
	}
	for _, e := range entries { // of batches that were not finished when they were made
		id, _, _ := strings.Cut(e.Name(), ".")
		if r.batches[id] == nil && !unread[id] {
			_ = os.Remove(filepath.Join(o.Dir, e.Name()))
		}
	}
	for _, b := range r.batches {
		if !b.b.Status.over() {
			r.start(b)
		}
	}
	return r, nil
}

// Close stops the requests that run; the next Open begins them anew.
func (r *Runner) Close() {
	r.cancel()
	r.group.Wait()
}

func (r *Runner) path(id, kind string) string { return filepath.Join(r.Dir, id+"."+kind) }

func (r *Runner) drop(id string) {
	for _, kind := range []string{"json", "lines", "results"} { // without the first it is not there
		_ = os.Remove(r.path(id, kind))
	}
}

// save writes the state. b.mu is held, or the batch is not known yet.
func (r *Runner) save(b *Batch) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	t, err := os.CreateTemp(r.Dir, ".state-*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // removes it after an error
	_, err = t.Write(text)
	if err == nil {
		err = t.Sync()
	}
	if err = errors.Join(err, t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), r.path(b.ID, "json"))
}

func refuse(code wire.Code, format string, args ...any) error {
	return &wire.RequestError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Request is a request of a new batch.
type Request struct {
	ID   string
	Body json.RawMessage
	Line int // where it is, from 1
}

// Create begins a batch. next returns its requests until io.EOF; a Fault error ends it as a failed one.
func (r *Runner) Create(b Batch, next func() (Request, error)) (Batch, error) {
	if err := r.room(b.Owner); err != nil {
		return b, err
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.begun[b.Owner]--; r.begun[b.Owner] == 0 {
			delete(r.begun, b.Owner)
		}
	}()
	b.ID = "batch_" + files.NewID(r.Now())
	if b.Anthropic {
		b.ID = "msg" + b.ID
	}
	b.Created, b.Status = r.Now().Unix(), InProgress
	b.Expires = b.Created + int64(Window/time.Second)
	err := r.writeLines(&b, next)
	var fault *FaultError
	if errors.As(err, &fault) {
		b.Status, b.Ended, b.Faults, b.Bytes, err = Failed, b.Created, []Fault{fault.Fault}, 0, nil
		_ = os.Remove(r.path(b.ID, "lines"))
	}
	if err == nil {
		err = r.save(&b)
	}
	if err != nil {
		r.drop(b.ID)
		return b, err
	}
	run := &running{b: b}
	r.mu.Lock()
	r.batches[b.ID] = run
	r.mu.Unlock()
	if !b.Status.over() {
		r.start(run)
	}
	return b, nil
}

// room counts a batch of an owner as begun, or returns the error of one that has too many. The oldest ones that are
// over make place.
func (r *Runner) room(owner uint32) error {
	list := r.List(owner)
	live, size := 0, int64(0)
	for i := range list {
		if size += list[i].Bytes; !list[i].Status.over() {
			live++
		}
	}
	for i := len(list) - 1; i >= 0 && (len(list) >= MaxKept || size > MaxOwnerBytes); i-- {
		if list[i].Status.over() {
			_ = r.Delete(owner, list[i].ID)
			size -= list[i].Bytes
			list = slices.Delete(list, i, i+1)
		}
	}
	all := int64(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.batches {
		b.mu.Lock()
		all += b.b.Bytes
		b.mu.Unlock()
	}
	switch {
	case live+r.begun[owner] >= MaxRunning:
		return refuse(wire.QueueLimit, "this user has %d batches that are not over, which is the maximum", MaxRunning)
	case size > MaxOwnerBytes:
		return refuse(wire.QueueLimit, "this user's batches that are not over have %d bytes of requests and answers; "+
			"the maximum is %d", size, MaxOwnerBytes)
	case all > MaxAllBytes:
		return refuse(wire.QueueLimit, "the batches of all users have %d bytes of requests and answers; the maximum "+
			"is %d", all, MaxAllBytes)
	}
	r.begun[owner]++
	return nil
}

// FaultError is the error of a request of a batch.
type FaultError struct{ Fault }

func (e *FaultError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// writeLines keeps the requests of a batch.
func (r *Runner) writeLines(b *Batch, next func() (Request, error)) (err error) {
	f, err := os.OpenFile(r.path(b.ID, "lines"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	seen := map[string]bool{}
	size := 0
	for n := 1; ; n++ {
		q, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		fault := func(code, format string, args ...any) error {
			return &FaultError{Fault{q.Line, code, fmt.Sprintf(format, args...)}}
		}
		switch {
		case err != nil:
			return err
		case n > MaxLines:
			return fault("too_many_requests", "a batch has at most %d requests", MaxLines)
		case q.ID == "" || len(q.ID) > maxCustom:
			return fault("invalid_custom_id", "custom_id must have 1…%d bytes", maxCustom)
		case seen[q.ID]:
			return fault("duplicate_custom_id", "custom_id %.60q is that of another request", q.ID)
		}
		seen[q.ID] = true
		text, err := marshal(line{q.ID, q.Body})
		if err != nil {
			return fault("invalid_json", "the body is no JSON: %v", err)
		}
		if size += len(text); size > MaxBytes {
			return fault("too_large", "the requests of a batch have at most %d bytes", MaxBytes)
		}
		out.Write(text)
		b.Counts.Total, b.Bytes = n, int64(size)
	}
	if b.Counts.Total == 0 {
		return &FaultError{Fault{1, "empty_batch", "there are no requests"}}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// Get returns a batch of an owner.
func (r *Runner) Get(owner uint32, id string) (Batch, bool) {
	r.mu.Lock()
	run := r.batches[id]
	r.mu.Unlock()
	if run == nil {
		return Batch{}, false
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.b, run.b.Owner == owner
}

// List returns the batches of an owner, newest first: in the falling order of their ids.
func (r *Runner) List(owner uint32) []Batch {
	r.mu.Lock()
	all := make([]*running, 0, len(r.batches))
	for _, b := range r.batches {
		all = append(all, b)
	}
	r.mu.Unlock()
	var out []Batch
	for _, run := range all {
		run.mu.Lock()
		if run.b.Owner == owner {
			out = append(out, run.b)
		}
		run.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Batch) int { return strings.Compare(b.ID, a.ID) })
	return out
}

// Cancel ends a batch of an owner: requests that run are cancelled, the others do not begin.
func (r *Runner) Cancel(owner uint32, id string) (Batch, bool) {
	r.mu.Lock()
	run := r.batches[id]
	r.mu.Unlock()
	if run == nil {
		return Batch{}, false
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.b.Owner != owner {
		return Batch{}, false
	}
	if run.b.Status == InProgress {
		run.b.Status, run.b.Canceled = Canceling, r.Now().Unix()
		if err := r.save(&run.b); err != nil {
			r.Log.Error("a batch's state cannot be saved", "batch", id, "error", err)
		}
		if run.cancel != nil {
			run.cancel()
		}
	}
	return run.b, true
}

// Delete forgets a batch of an owner that is over. Files of its results stay.
func (r *Runner) Delete(owner uint32, id string) error {
	b, ok := r.Get(owner, id)
	switch {
	case !ok:
		return refuse(wire.ModelNotFound, "there is no batch %.60q", id)
	case !b.Status.over():
		return refuse(wire.BadRequest, "batch %s is not over: cancel it first", id)
	}
	r.mu.Lock()
	delete(r.batches, id)
	r.mu.Unlock()
	r.drop(id)
	return nil
}

// Results opens the results of a batch that is over, in the order in which they came.
func (r *Runner) Results(owner uint32, id string) (io.ReadCloser, error) {
	b, ok := r.Get(owner, id)
	switch {
	case !ok:
		return nil, refuse(wire.ModelNotFound, "there is no batch %.60q", id)
	case !b.Status.over():
		return nil, refuse(wire.BadRequest, "batch %s is not over; its results can be read when it is", id)
	}
	f, err := os.Open(r.path(id, "results"))
	if errors.Is(err, os.ErrNotExist) { // it has been deleted since
		err = refuse(wire.ModelNotFound, "there is no batch %.60q", id)
	}
	return f, err
}

// Counted returns how many requests of batches had each outcome since the start, for metrics.
func (r *Runner) Counted(outcome string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[outcome]
}
