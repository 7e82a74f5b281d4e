// Package kept keeps what clients leave with a daemon: their files and their batches. Nothing of it is read before a
// client asks for it, or a batch of an earlier process waits.
package kept

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/batches"
	"github.com/uma-serve/uma-serve/daemon/files"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// ErrLost is the error of a function that answers requests of batches, when the model's process has ended meanwhile.
var ErrLost = batches.ErrLost

// Options are the parts of a Keeper.
type Options struct {
	Dir   string // "" = in the user's cache folder
	Ask   batches.Ask
	Owner func(r *http.Request) uint32
	// Fail answers with an error in the form of the API that is asked.
	Fail func(w http.ResponseWriter, r *http.Request, e *wire.Error)
	Log  *slog.Logger
}

// Keeper has the files and batches. It is safe for concurrent use.
type Keeper struct {
	Options
	mu     sync.Mutex // held while the folder is read
	closed bool
	made   atomic.Pointer[store] // nil until the folder could be read
}

type store struct {
	lock   *os.File
	files  *files.Store
	runner *batches.Runner
}

// New returns a Keeper that has read nothing yet.
func New(o Options) *Keeper { return &Keeper{Options: o} }

func (k *Keeper) folder() (string, error) {
	if k.Dir != "" {
		return k.Dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "uma-serve", "kept"), err
}

// open reads the files, once. After an error, the next request tries again.
func (k *Keeper) open() (*store, error) {
	if s := k.made.Load(); s != nil {
		return s, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.made.Load(); s != nil {
		return s, nil
	}
	if k.closed {
		return nil, errors.New("the server is ending")
	}
	s, err := k.read()
	if err != nil {
		k.Log.Error("files and batches of clients cannot be kept", "error", err)
		return nil, err
	}
	k.made.Store(s)
	return s, nil
}

func (k *Keeper) read() (*store, error) {
	dir, err := k.folder()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &store{}
	if s.lock, err = lock(filepath.Join(dir, "lock")); err != nil {
		return nil, err
	}
	if s.files, err = files.Open(filepath.Join(dir, "files"), time.Now); err == nil {
		s.runner, err = batches.Open(batches.Options{Dir: filepath.Join(dir, "batches"), Ask: k.Ask, Log: k.Log,
			Now: time.Now, Keep: s.keep})
	}
	if err != nil {
		s.lock.Close()
		return nil, err
	}
	return s, nil
}

// lock takes the folder for this process: two daemons would run the same batches, and remove the files that come to the
// other one.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another uma-serve of this user has %s; use that one, or give this one a different "+
			"XDG_CACHE_HOME", filepath.Dir(path))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// keep makes a file of a batch's results, once: the process may have ended before the batch knew it.
func (s *store) keep(owner uint32, name string, r io.Reader) (string, error) {
	for _, f := range s.files.List(owner) {
		if f.Name == name && f.Purpose == files.Results {
			return f.ID, nil
		}
	}
	f, err := s.files.Create(owner, files.File{Name: name, Purpose: files.Results, MIME: "application/jsonl"}, r)
	return f.ID, err
}

// Resume continues with batches that an earlier process has left.
func (k *Keeper) Resume() {
	dir, err := k.folder()
	if err != nil {
		return
	}
	if left, err := os.ReadDir(filepath.Join(dir, "batches")); err == nil && len(left) > 0 {
		_, _ = k.open() // logs the error; the next request tries again
	}
}

// Close stops the batches; the next process continues with them.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed = true; k.made.Load() != nil {
		k.made.Load().runner.Close()
		k.made.Load().lock.Close()
	}
}

// Counted returns how many requests of batches had an outcome since the start: succeeded, errored, cancelled, expired.
func (k *Keeper) Counted(outcome string) uint64 {
	if s := k.made.Load(); s != nil {
		return s.runner.Counted(outcome)
	}
	return 0
}

// ReadFile returns a file of a user for a request that names it by its id, with most bytes at most. The error is an
// *api.Error where the client can do something about it.
func (k *Keeper) ReadFile(owner uint32, id string, most int64) (name string, data []byte, err error) {
	s, err := k.open()
	if err != nil {
		return "", nil, err
	}
	f, in, err := s.files.Read(owner, id)
	if errors.Is(err, files.ErrNone) {
		return "", nil, &api.Error{Code: wire.ModelNotFound, Message: fmt.Sprintf("File not found: %.60s", id)}
	}
	if err != nil {
		return "", nil, err
	}
	defer in.Close()
	if f.Bytes > most {
		return "", nil, &api.Error{Code: wire.FrameTooLarge,
			Message: fmt.Sprintf("file %s has %d bytes, and a message can name one of at most %d", id, f.Bytes, most)}
	}
	data, err = io.ReadAll(io.LimitReader(in, most))
	return f.Name, data, err
}

// Routes returns the paths of files and batches.
func (k *Keeper) Routes() (routes []api.Route) {
	list := func(s *store) []api.Route {
		f := &files.API{Store: s.files, Owner: k.Owner, Fail: k.Fail}
		b := &batches.API{Runner: s.runner, Files: s.files, Owner: k.Owner, Fail: k.Fail}
		return append(f.Routes(), b.Routes()...)
	}
	for i, r := range list(&store{}) {
		r.Handle = func(w http.ResponseWriter, q *http.Request) {
			s, err := k.open()
			if err != nil {
				k.Fail(w, q, &wire.Error{Code: wire.InternalFailure,
					Message: "files and batches cannot be kept: " + err.Error()})
				return
			}
			list(s)[i].Handle(w, q)
		}
		routes = append(routes, r)
	}
	return routes
}
