package front

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/store"
)

// Models that are on this machine and have no table [models.NAME] are served under their names, as uma-cli models lists
// them. The folders are scanned on another goroutine than the poller's: when a request names a model that is not known,
// and for a list of models.

// catalogFresh is the time for which the result of a scan holds: only after it, a name that was not found is looked up
// again.
const catalogFresh = 2 * time.Second

// maxName bounds the names that are remembered, in bytes.
const maxName = 256

// maxUnknown is the most names that are remembered as unknown.
const maxUnknown = 1024

// maxCalled is the most names besides those of its table that a model's process accepts for its model.
const maxCalled = 256

// found caches the scan for models of this machine. Its fields belong to the poller's goroutine.
type found struct {
	store    *store.Store   // constant; nil with --serve-found=false
	catalog  *store.Catalog // nil before the first look
	at       time.Time      // of the newest scan
	looking  bool
	resuming bool             // the requests that waited for the scan are being routed, and must not start another one
	waiting  []*ipc.Conn      // for a scan
	unknown  map[string]error // names that the catalog does not have, maxUnknown at most
}

// stale reports whether another scan may find models that the catalog lacks.
func (d *found) stale() bool {
	return d.store != nil && !d.resuming && (d.catalog == nil || time.Since(d.at) > catalogFresh)
}

// resolve returns the model of a request's name, nil for none. look: the folders must be scanned first.
func (f *Front) resolve(name string) (m *served, look bool) {
	if m = f.configured(name); m != nil {
		return m, false
	}
	if m, _ = f.onDisk(name); m != nil {
		return m, false
	}
	if f.found.stale() {
		if !f.lenient || f.found.catalog == nil {
			return nil, true
		}
		f.scan() // for the next one: most names of this kind mean no model of this machine
	}
	if f.lenient && (!strings.Contains(name, "/") || f.cfg.Model != "" || f.cfg.HFRepo != "") {
		return f.def, false // the built-in model stands for no repository
	}
	return nil, false
}

// onDisk returns the model of this machine with that name, by the last scan. The error says why there is none.
func (f *Front) onDisk(name string) (*served, error) {
	d := &f.found
	if d.catalog == nil {
		return nil, store.ErrUnknown
	}
	if err := d.unknown[name]; err != nil {
		return nil, err
	}
	of, err := d.catalog.Lookup(name)
	if err == nil {
		err = of.Whole()
	}
	if err != nil {
		if len(d.unknown) < maxUnknown && len(name) <= maxName {
			d.unknown[name] = err
		}
		return nil, err
	}
	if of.Recipe != nil && of.Recipe.Plain() { // another name for a model
		if base, err := d.catalog.Lookup(of.Recipe.From); err == nil {
			of = base
		}
	}
	if m := f.serving(of); m != nil {
		return m, nil
	}
	m, err := f.newFound(of)
	if err != nil {
		return nil, err
	}
	f.models = append(f.models, m)
	return m, nil
}

// newFound returns a model of this machine as one that can be loaded.
func (f *Front) newFound(of *store.Model) (*served, error) {
	m := &served{f: f, name: of.ID(), idle: f.cfg.IdleUnload, file: of.Path(), recipe: recipeOf(of)}
	var err error
	if m.recipe != "" {
		m.cfg, err = f.cfg.ForRecipe(of.Recipe, of.Path())
	} else {
		m.cfg, err = f.cfg.ForFound(of.ID(), of.Path())
	}
	return m, err
}

// recipeOf returns the name of a model's recipe, "" for a file, and for a recipe that is another name for one.
func recipeOf(of *store.Model) string {
	if of.Recipe == nil || of.Recipe.Plain() {
		return ""
	}
	return strings.ToLower(of.ID())
}

// serving returns the model that is already served from the same file, nil if there is none.
func (f *Front) serving(of *store.Model) *served {
	recipe := recipeOf(of)
	for _, m := range f.models {
		if m.file == of.Path() && m.recipe == recipe {
			return m
		}
	}
	if recipe != "" {
		return nil
	}
	want, err := os.Stat(of.Path())
	if err != nil {
		return nil
	}
	for _, m := range f.models {
		if st, err := os.Stat(f.fileOf(m)); err == nil && os.SameFile(want, st) && m.recipe == "" {
			return m
		}
	}
	return nil
}

// fileOf returns the file of a model, "" while it is not known.
func (f *Front) fileOf(m *served) string {
	switch {
	case m.file != "":
	case m.located != nil:
		m.file = m.located.Model
	case store.IsPath(m.cfg.Model):
		if path, err := filepath.Abs(m.cfg.Model); err == nil {
			m.file = path
		}
	case m.cfg.Model != "" && f.found.catalog != nil:
		if of, err := f.found.catalog.Resolve(m.cfg.Model); err == nil {
			m.file = of.Path()
		}
	}
	return m.file
}

// ownFiles returns the files that lists show as those of a configured model alone.
func (f *Front) ownFiles(m *served) []string {
	switch {
	case m.table == nil || !m.table.Preset:
		return []string{f.fileOf(m)}
	case m.table.Doubled:
		return nil
	}
	files := []string{f.fileOf(m)} // dedup-cache-models is for the draft model as well
	if draft := m.cfg.DraftModel; draft != "" && f.found.catalog != nil {
		if of, err := f.found.catalog.Resolve(draft); err == nil {
			files = append(files, of.Path())
		}
	}
	return files
}

// scan scans the folders, unless a scan is under way; the connections that wait for its result go on then.
func (f *Front) scan() {
	if f.found.store == nil || f.found.looking {
		return
	}
	f.found.looking = true
	f.beside.Go(func() {
		c, err := f.found.store.Scan(f.ctx)
		f.loop.Do(func() {
			f.found.looking = false
			if err != nil { // the front is ending
				c = &store.Catalog{}
			}
			f.scanned(c)
		})
	})
}

// scanned takes over the result of a scan.
func (f *Front) scanned(c *store.Catalog) {
	f.found.catalog, f.found.at, f.found.unknown = c, time.Now(), map[string]error{}
	f.found.resuming = true
	for _, m := range slices.Clone(f.models) {
		kept := len(m.called)
		for name := range m.called {
			if of, _ := f.resolve(name); of != m {
				delete(m.called, name)
			}
		}
		if len(m.called) < kept {
			m.tellNames()
		}
	}
	waiting := f.found.waiting
	f.found.waiting = nil
	for _, conn := range waiting {
		f.loop.Resume(conn)
	}
	f.found.resuming = false
}

// fresh returns a catalog that is not older than catalogFresh, for a list of models; nil with --serve-found=false. Not
// on the poller's goroutine.
func (f *Front) fresh(ctx context.Context) (c *store.Catalog) {
	if f.found.store == nil {
		return nil
	}
	f.call(func() {
		if !f.found.stale() {
			c = f.found.catalog
		}
	})
	if c != nil {
		return c
	}
	c, err := f.found.store.Scan(ctx)
	if err != nil {
		return nil
	}
	f.call(func() { f.scanned(c) })
	return c
}

// listed returns the models of a catalog that requests can name and that have no table. Not on the poller's goroutine.
func (f *Front) listed(c *store.Catalog) (out []*store.Model) {
	if c == nil {
		return nil
	}
	var files []string
	named := map[string]bool{} // models whose name is a configured one's
	f.call(func() {
		for _, m := range f.models {
			if m.configured {
				files = append(files, f.ownFiles(m)...)
			}
		}
		for i := range c.Models {
			if id := c.Models[i].ID(); f.configured(id) != nil {
				named[id] = true
			}
		}
	})
	var configured []os.FileInfo
	for _, path := range files {
		if st, err := os.Stat(path); err == nil {
			configured = append(configured, st)
		}
	}
	seen := map[string]bool{}
	for i := range c.Models {
		of := &c.Models[i]
		fold := strings.ToLower(of.ID())
		if of.Incomplete != "" || seen[fold] || named[of.ID()] {
			continue
		}
		seen[fold] = true
		st, err := os.Stat(of.Path())
		same := func(o os.FileInfo) bool { return os.SameFile(st, o) }
		if err == nil && (of.Recipe != nil || !slices.ContainsFunc(configured, same)) {
			out = append(out, of)
		}
	}
	return out
}

// calledBy records a name that a request uses for the model and tells its process, which then keeps connections with
// that name.
func (m *served) calledBy(name string) {
	fold := strings.ToLower(name)
	own := slices.ContainsFunc(m.names(), func(n string) bool { return strings.EqualFold(n, name) })
	if fold == "" || own || m.called[fold] || len(m.called) >= maxCalled || len(name) > maxName {
		return
	}
	if m.called == nil {
		m.called = map[string]bool{}
	}
	m.called[fold] = true
	m.tellNames()
}

// names returns the names that always mean the model.
func (m *served) names() []string {
	out := append([]string{m.name}, m.aliases...)
	if m.title != "" {
		out = append(out, m.title)
	}
	return out
}

// allNames returns names and the names recorded by calledBy.
func (m *served) allNames() []string {
	out := m.names()
	for name := range m.called {
		out = append(out, name)
	}
	return out
}

// tellNames tells the model's process which names are its model's.
func (m *served) tellNames() {
	if m.proc != nil && !m.proc.dead {
		_ = m.proc.link.Send(link.Names, 0, -1, api.MustJSON(m.allNames())) // fails when it has just ended
	}
}

// unknownModel returns the error for a name that no model has.
func (f *Front) unknownModel(name string) *wire.Error {
	if _, err := f.onDisk(name); err != nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrName) {
		return &wire.Error{Code: wire.ModelNotFound, Message: clierr.Text(err)}
	}
	var names []string
	for _, m := range f.models {
		names = append(names, m.names()...)
	}
	if c := f.found.catalog; c != nil {
		names = append(names, c.Names()...)
	}
	return report.UnknownModel(name, names)
}
