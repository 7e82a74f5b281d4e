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

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/batches"
	"github.com/uma-serve/uma-serve/daemon/files"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

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
	once sync.Once
	made atomic.Pointer[store]
}

type store struct {
	files  *files.Store
	runner *batches.Runner
	err    error // why there are none
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

// open reads what is there, once.
func (k *Keeper) open() *store {
	k.once.Do(func() {
		s := &store{}
		defer k.made.Store(s)
		dir, err := k.folder()
		if err == nil {
			s.files, err = files.Open(filepath.Join(dir, "files"), time.Now)
		}
		if err == nil {
			s.runner, err = batches.Open(batches.Options{Dir: filepath.Join(dir, "batches"), Ask: k.Ask, Log: k.Log,
				Now: time.Now, Keep: func(owner uint32, name string, r io.Reader) (string, error) {
					f, err := s.files.Create(owner, files.File{Name: name, Purpose: "batch_output",
						MIME: "application/jsonl"}, r)
					return f.ID, err
				}})
		}
		if s.err = err; err != nil {
			k.Log.Error("files and batches of clients cannot be kept", "error", err)
		}
	})
	return k.made.Load()
}

// Resume goes on with batches that an earlier process has left.
func (k *Keeper) Resume() {
	dir, err := k.folder()
	if err != nil {
		return
	}
	if left, err := os.ReadDir(filepath.Join(dir, "batches")); err == nil && len(left) > 0 {
		k.open()
	}
}

// Close stops the batches; the next process goes on with them.
func (k *Keeper) Close() {
	k.once.Do(func() { k.made.Store(&store{err: errors.New("the server is ending")}) })
	if s := k.made.Load(); s.runner != nil {
		s.runner.Close()
	}
}

// Counted returns how many requests of batches had an outcome since the start: succeeded, errored, cancelled, expired.
func (k *Keeper) Counted(outcome string) uint64 {
	if s := k.made.Load(); s != nil && s.runner != nil {
		return s.runner.Counted(outcome)
	}
	return 0
}

// ReadFile returns a file of a user for a request that names it by its id, with most bytes at most. The error is an
// *api.Error where the client can do something about it.
func (k *Keeper) ReadFile(owner uint32, id string, most int64) (name string, data []byte, err error) {
	s := k.open()
	if s.err != nil {
		return "", nil, s.err
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
			s := k.open()
			if s.err != nil {
				k.Fail(w, q, &wire.Error{Code: wire.InternalFailure,
					Message: "files and batches cannot be kept: " + s.err.Error()})
				return
			}
			list(s)[i].Handle(w, q)
		}
		routes = append(routes, r)
	}
	return routes
}
