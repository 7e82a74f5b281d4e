package front

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api/changes"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/store"
)

// The Front is the changes.Host of the APIs.
var _ changes.Host = (*Front)(nil)

// May returns the status and the reason with which a request that changes which models there are is refused.
func (f *Front) May(r *http.Request) (status int, why string) {
	switch {
	case !f.privileged(r):
		return http.StatusForbidden, onlyAdmins
	case f.found.store == nil:
		return http.StatusNotImplemented, "this server serves the models of its configuration alone " +
			"(--serve-found=false): start uma-serve without that option to download, copy and delete models"
	}
	return 0, ""
}

// Base returns the origin of a recipe that is made of a model, and the model's recipe.
func (f *Front) Base(ctx context.Context, name string) (from string, recipe *store.Recipe, e *wire.Error) {
	f.rescan()
	var of *store.Model
	var file string
	if !f.call(func() {
		c := f.found.catalog
		if c == nil {
			e = shuttingDown()
			return
		}
		if m := f.configured(name); m != nil && name != "" {
			if file = f.fileOf(m); file == "" {
				e = &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second, Message: "the file of " + m.label() +
					" is not known yet; ask again when it is loaded"}
			}
			for i := range c.Models {
				if o := &c.Models[i]; o.Recipe == nil && o.Path() == file {
					of = o
				}
			}
			return
		}
		var err error
		if of, err = c.Lookup(name); err == nil {
			err = of.Whole()
		}
		if err != nil {
			e = lookupError(err)
		}
	}) {
		e = shuttingDown()
	}
	switch {
	case e != nil:
		return "", nil, e
	case of == nil: // a file of the configuration, beside the places of models
		return file, nil, nil
	case of.Recipe != nil:
		return of.Recipe.From, of.Recipe, nil
	}
	return of.ID(), nil, nil
}

// lookupError returns the error of a name that a catalog does not have.
func lookupError(err error) *wire.Error {
	code := wire.ModelNotFound
	if errors.Is(err, store.ErrName) || errors.Is(err, store.ErrAmbiguous) {
		code = wire.BadRequest
	}
	return &wire.Error{Code: code, Message: clierr.Text(err)}
}

// Create keeps a recipe. The model of an older one of that name is unloaded.
func (f *Front) Create(ctx context.Context, r store.Recipe) *wire.Error {
	f.removing.Lock()
	defer f.removing.Unlock()
	f.rescan()
	var old *store.Model
	var e *wire.Error
	if !f.call(func() {
		c := f.found.catalog
		if f.draining || c == nil {
			e = shuttingDown()
			return
		}
		if m := f.configured(r.Name); m != nil {
			e = wire.Errorf(wire.BadRequest, "the configuration has a model %s; choose another name", m.label())
			return
		}
		for alias, to := range c.Aliases {
			if strings.EqualFold(alias, r.Name) {
				e = wire.Errorf(wire.BadRequest, "%s is an alias of %s; choose another name", alias, to)
			}
		}
		switch of, err := c.Lookup(r.Name); {
		case err != nil: // the name is free, or the recipe of that name is not whole
			return
		case of.Recipe == nil:
			e = wire.Errorf(wire.BadRequest, "%s is a model of this machine (%s); choose another name", of.ID(),
				of.Place)
		default:
			old = of
		}
	}) {
		e = shuttingDown()
	}
	if e == nil {
		// What the engine would refuse is refused now.
		if _, err := f.cfg.ForRecipe(&r, "x"); err != nil {
			e = &wire.Error{Code: wire.BadRequest, Message: clierr.Text(err)}
		}
	}
	if e == nil && old != nil {
		e = f.leave(ctx, old)
	}
	if e == nil {
		if err := f.found.store.SetRecipe(r); err != nil {
			e = &wire.Error{Code: wire.InternalFailure, Message: "create " + r.Name + ": " + clierr.Text(err)}
			if errors.Is(err, store.ErrName) || errors.Is(err, store.ErrBlob) {
				e.Code = wire.BadRequest
			}
		}
	}
	if old != nil {
		f.call(func() { f.forget(old) })
	}
	f.rescan()
	if e == nil {
		f.log.Info("created", "model", r.Name, "from", r.From)
	}
	return e
}

// Blob returns the origin of a recipe for a file with this digest.
func (f *Front) Blob(ctx context.Context, sum string) (from string, ok bool) {
	c := f.fresh(ctx)
	if c == nil {
		return "", false
	}
	return c.ByDigest(sum)
}

// PutBlob keeps a file that a client sends.
func (f *Front) PutBlob(ctx context.Context, sum string, r io.Reader) *wire.Error {
	if _, ok := f.Blob(ctx, sum); ok {
		return nil
	}
	err := f.found.store.PutBlob(sum, r)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrBlob):
		return &wire.Error{Code: wire.BadRequest, Message: clierr.Text(err)}
	}
	return wire.Errorf(wire.InternalFailure, "the file %s cannot be kept below %s: %s", sum, f.found.store.Dir(),
		clierr.Text(err))
}

// Models lists the models that requests can name.
func (f *Front) Models(ctx context.Context) (out []changes.Model) {
	for _, l := range f.list(ctx) {
		out = append(out, changeOf(l))
	}
	return out
}

// changeOf returns a listing in the form of package changes.
func changeOf(l *report.Listing) changes.Model {
	m := &l.Facts.Model
	c := changes.Model{Name: l.Name, Bytes: l.Facts.File.Bytes, Architecture: m.Architecture, Type: l.Facts.FileType(),
		Parameters: m.Parameters, TrainContext: m.TrainContext, Encoder: m.Encoder, Tools: m.ChatTemplate,
		Loaded: l.Ready, Parallel: l.Config.Parallel}
	if c.Bytes == 0 {
		c.Bytes = int64(m.Bytes)
	}
	if c.Loaded {
		c.Context = l.Facts.Context
	}
	return c
}

// loadLook is the time between two looks at a model that is being loaded.
const loadLook = 20 * time.Millisecond

// Load loads a model and waits until it answers.
func (f *Front) Load(ctx context.Context, name string) (*changes.Model, *wire.Error) {
	if _, e := f.do(ctx, name, f.loadAsked); e != nil {
		return nil, e
	}
	t := time.NewTicker(loadLook)
	defer t.Stop()
	for {
		var label string
		done := false
		if _, e := f.do(ctx, name, func(m *served) *wire.Error {
			if m.state == down && m.down != nil {
				e := *m.down
				return &e
			}
			label, done = m.label(), m.state == ready
			if m.state == unloaded { // it was loaded, and another model has taken its place
				f.want(m)
			}
			return nil
		}); e != nil {
			return nil, e
		}
		if done {
			for _, m := range f.Models(ctx) {
				if m.Name == label || strings.EqualFold(m.Name, name) {
					return &m, nil
				}
			}
			return &changes.Model{Name: label, Loaded: true}, nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, &wire.Error{Code: wire.ModelUnready, Message: "the client has left"}
		}
	}
}

// Unload unloads a model, when its running answers have ended.
func (f *Front) Unload(ctx context.Context, name string) *wire.Error {
	_, e := f.do(ctx, name, f.unloadAsked)
	return e
}
