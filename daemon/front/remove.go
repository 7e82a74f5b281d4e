package front

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/models/store"
)

// Models that a request deletes. A loaded one is unloaded first: its running answers end, new requests for it are
// refused.

const (
	removeWait = time.Minute           // for a model's running answers to end
	removeLook = 20 * time.Millisecond // between two looks at it
)

// quoted returns a name in an error, cut.
func quoted(name string) string { return fmt.Sprintf("%.100q", name) }

// Remove deletes a model of the models directory; a download of it is canceled, and what has arrived of it is deleted.
func (f *Front) Remove(ctx context.Context, name string) *wire.Error {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	canceled := f.discard(ctx, name)
	f.removing.Lock() // one at a time: which models depend on it is looked up first
	defer f.removing.Unlock()
	f.rescan()
	if canceled != nil {
		here := f.arrivedAs(canceled)
		if here == "" {
			f.removed.Add(name)
			return nil
		}
		name = here
	}
	of, made, e := f.removable(name)
	if e != nil {
		return e
	}
	if e = f.leave(ctx, of); e == nil {
		e = f.keep(ctx, of, made)
	}
	if e == nil {
		if err := f.found.store.Remove(of); err != nil {
			e = &wire.Error{Code: wire.InternalFailure, Message: "delete " + of.ID() + ": " + clierr.Text(err)}
		}
	}
	f.call(func() { f.forget(of) })
	for _, m := range made {
		f.call(func() { f.forget(m) })
	}
	f.rescan()
	if e != nil {
		return e
	}
	f.log.Info("deleted", "model", of.ID(), "bytes", of.Bytes)
	f.removed.Add(of.ID())
	return nil
}

// arrivedAs returns the name of the model that a canceled download has left whole files of, or that it would have
// replaced by a newer one; "": there is none.
func (f *Front) arrivedAs(canceled *download.State) (name string) {
	path := canceled.Place(f.found.store.Dir())
	f.call(func() {
		if c := f.found.catalog; c != nil && path != "" {
			for i := range c.Models {
				if m := &c.Models[i]; m.Recipe == nil && slices.Contains(m.Files, path) {
					name = m.ID()
				}
			}
		}
	})
	return name
}

// discard cancels the download of a name and deletes what has arrived of files that are not whole; nil: none runs.
func (f *Front) discard(ctx context.Context, name string) *download.State {
	for _, spelled := range []string{name, download.RouterName(name)} {
		key, err := download.Key(spelled)
		if err != nil {
			continue
		}
		for _, d := range f.downloads.List() {
			if k, _ := download.Key(d.Name); k != key || !d.Status.Runs() {
				continue
			}
			if !f.downloads.Cancel(ctx, d.Name) {
				return nil
			}
			if err := f.downloads.Discard(f.found.store.Dir(), d); err != nil {
				f.log.Warn("the parts of a canceled download stay", "model", d.Name, "error", err)
			}
			return &d
		}
	}
	return nil
}

// keep lets the models that were made of one keep its file, which is about to be deleted: they are unloaded, and read
// the file under its other name when a request comes.
func (f *Front) keep(ctx context.Context, of *store.Model, made []*store.Model) *wire.Error {
	if len(made) == 0 {
		return nil
	}
	var names []string
	for _, m := range made {
		if e := f.leave(ctx, m); e != nil {
			return e
		}
		names = append(names, m.ID())
	}
	var c *store.Catalog
	f.call(func() { c = f.found.catalog })
	if c == nil {
		return shuttingDown()
	}
	if err := f.found.store.Keep(ctx, c, of, names); err != nil {
		return wire.Errorf(wire.InternalFailure, "delete %s: its file cannot be kept for %s: %s", of.ID(),
			strings.Join(names, ", "), clierr.Text(err))
	}
	return nil
}

// removable returns the model of a name, if it may be deleted, and the models that were made of it.
func (f *Front) removable(name string) (of *store.Model, made []*store.Model, e *wire.Error) {
	var c *store.Catalog
	if !f.call(func() {
		c = f.found.catalog
		m := f.configured(name)
		switch {
		case f.draining || c == nil:
			e = shuttingDown()
		case m != nil:
			e = wire.Errorf(wire.BadRequest, "model %s is one of the configuration; take it out of the options or "+
				"the configuration file first", m.label())
		}
	}) {
		return nil, nil, shuttingDown()
	}
	if e != nil {
		return nil, nil, e
	}
	of, err := c.Lookup(name)
	if err != nil {
		return nil, nil, lookupError(err)
	}
	for alias := range c.Aliases {
		if strings.EqualFold(alias, name) {
			return nil, nil, wire.Errorf(wire.BadRequest, "%s is an alias of %s; uma-cli alias --delete %s removes "+
				"the alias", alias, of.ID(), alias)
		}
	}
	if err := f.found.store.MayRemove(of); err != nil {
		return nil, nil, &wire.Error{Code: wire.BadRequest, Message: clierr.Text(err)}
	}
	for _, id := range c.MadeOf(of) {
		if m, err := c.Lookup(id); err == nil {
			made = append(made, m)
		}
	}
	if err := of.MayKeep(); err != nil && len(made) > 0 {
		return nil, nil, wire.Errorf(wire.BadRequest, "models were made of %s and have no weights without it (%s); "+
			"delete those first: %s", of.ID(), strings.Join(c.MadeOf(of), ", "), clierr.Text(err))
	}
	if of.Recipe != nil {
		return of, nil, nil
	}
	f.call(func() {
		for _, m := range f.models {
			if m.configured && slices.Contains(of.Files, f.fileOf(m)) {
				e = wire.Errorf(wire.BadRequest, "model %s is served by the configuration as %s; take it out there "+
					"first", of.ID(), m.label())
			}
		}
	})
	return of, made, e
}

// leave unloads every model that is served from the files of of, and keeps requests from loading it again.
func (f *Front) leave(ctx context.Context, of *store.Model) *wire.Error {
	refused := &wire.Error{Code: wire.ModelNotFound, Message: "model " + of.ID() + " is being deleted"}
	left, alive := f.retireAll(ctx, func() []*served { return f.servedFrom(of) }, refused)
	switch {
	case !alive:
		return shuttingDown()
	case left > 0:
		return &wire.Error{Code: wire.ModelUnready, RetryAfter: 10 * time.Second, Message: fmt.Sprintf(
			"model %s still answers requests; delete it when they have ended", of.ID())}
	}
	return nil
}

// retireAll ends the processes of the models that list returns on the poller's goroutine, and refuses their requests.
// It returns how many run still when ctx ends; false: the front has ended.
func (f *Front) retireAll(ctx context.Context, list func() []*served, refused *wire.Error) (left int, alive bool) {
	t := time.NewTicker(removeLook)
	defer t.Stop()
	for {
		left = 0
		if !f.call(func() {
			for _, m := range list() {
				m.down, m.retryAt = refused, time.Time{}
				if f.retire(m) {
					left++
				}
			}
		}) {
			return left, false
		}
		if left == 0 {
			return 0, true
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return left, true
		}
	}
}

// servedFrom returns the models that are served from the files of of. Poller's goroutine.
func (f *Front) servedFrom(of *store.Model) (list []*served) {
	for _, m := range f.models {
		// Another name for a model is deleted without it; the models that are made of one are deleted before it.
		plain := of.Recipe != nil && of.Recipe.Plain()
		if !m.configured && !plain && m.recipe == recipeOf(of) && f.fileOf(m) == of.Path() {
			list = append(list, m)
		}
	}
	return list
}

// retire ends the process of a model whose requests are refused; true: it has not ended yet. Poller's goroutine.
func (f *Front) retire(m *served) (runs bool) {
	switch m.state {
	case unloaded, down:
		m.state = down
		f.refuseWaiting(m, m.down)
	case queued:
		f.queue = slices.DeleteFunc(f.queue, func(o *served) bool { return o == m })
		m.state = down
		f.refuseWaiting(m, m.down)
	case loading: // nothing has been answered yet
		m.proc.leaving = true
		m.state = unloading
		m.proc.kill()
	case ready:
		f.unload(m, m.down.Message)
	}
	return m.state != down || m.proc != nil
}

// forget drops what the front knows of a model whose files were deleted, or that could not be deleted. Poller's
// goroutine.
func (f *Front) forget(of *store.Model) {
	for _, m := range f.servedFrom(of) {
		if m.proc == nil && m.state == down {
			f.models = slices.DeleteFunc(f.models, func(o *served) bool { return o == m })
		} else {
			m.down = nil
		}
	}
}
