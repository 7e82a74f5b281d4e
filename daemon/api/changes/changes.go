// Package changes is shared by the APIs that download, delete and load models: the front as an interface, and the
// errors of downloads. Each API has its own paths and shapes.
package changes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/models/store"
)

// Host is a front, as an API changes its models. Safe from any goroutine.
type Host interface {
	// May returns the HTTP status and the reason with which a request that changes models is refused; 0: it is not.
	May(r *http.Request) (status int, why string)

	// Download begins the download of a model, or joins the running one. asked is the name as the client wrote it. With
	// keep the download continues after the client has left. The caller releases the ticket.
	Download(name, asked string, keep bool) (*download.Ticket, *wire.Error)
	// Downloads returns the running downloads and the last ones that have ended.
	Downloads() []download.State

	// Remove deletes a model, which is unloaded first. A download of it is cancelled.
	Remove(ctx context.Context, name string) *wire.Error
	// Base returns the origin of a recipe that is made of a model, and the model's recipe; nil: the model is a file.
	Base(ctx context.Context, name string) (from string, recipe *store.Recipe, e *wire.Error)
	// Create keeps a recipe. One of that name is replaced, and unloaded.
	Create(ctx context.Context, r store.Recipe) *wire.Error
	// Blob returns the origin of a recipe for a file with this SHA-256 digest; ok: there is one.
	Blob(ctx context.Context, sum string) (from string, ok bool)
	// PutBlob keeps a file that a client sends.
	PutBlob(ctx context.Context, sum string, r io.Reader) *wire.Error

	// Models lists the models that requests can name.
	Models(ctx context.Context) []Model
	// Load loads a model and waits until it answers.
	Load(ctx context.Context, name string) (*Model, *wire.Error)
	// Unload unloads a model, when its running answers have ended, and does not wait.
	Unload(ctx context.Context, name string) *wire.Error
}

// Model is a model of a list.
type Model struct {
	Name         string
	Bytes        int64 // of its file
	Architecture string
	Type         string // quantisation of its weights
	Parameters   uint64
	TrainContext int // tokens
	Encoder      bool
	Tools        bool // its template has a syntax of tool calls
	Loaded       bool
	Context      int // of a loaded one, in tokens
	Parallel     int // maximum number of running requests
}

// DownloadError returns the error of a download as a request's.
func DownloadError(err error) *wire.Error {
	e := &wire.Error{Code: wire.InternalFailure, Message: err.Error()}
	failed, _ := errors.AsType[*download.Failure](err)
	if failed == nil {
		return e
	}
	switch failed.Kind {
	case download.KindName, download.KindAccess:
		e.Code = wire.BadRequest
	case download.KindNotFound:
		e.Code = wire.ModelNotFound
	case download.KindMemory:
		e.Code = wire.ModelTooLarge
	case download.KindOffline:
		e.Code = wire.NotSupported
	case download.KindBusy:
		e.Code, e.RetryAfter = wire.QueueLimit, 10*time.Second
	}
	return e
}

// Follow calls each with every state of a download, until it has ended, and returns the last one. ok is false when ctx
// ended first, or each returned false.
func Follow(ctx context.Context, t *download.Ticket, each func(*download.State) bool) (last download.State, ok bool) {
	for {
		st, changed := t.State()
		if !each(&st) {
			return st, false
		}
		if !st.Status.Runs() {
			return st, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return st, false
		}
	}
}
