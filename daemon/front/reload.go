package front

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/front/engineproc"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// The models of the configuration: its tables and the file of --models-preset, which GET /models?reload=1 reads again,
// as llama-server's router does.

// add makes a configured model known by its names.
func (f *Front) add(m *served) {
	if m.lora.bytes == nil { // new, and not kept over a reload
		m.lora = newAdapters(m.cfg)
	}
	for _, n := range append([]string{m.name}, m.aliases...) {
		f.names[strings.ToLower(n)] = m
	}
	f.nameAdapters(m)
	f.models = append(f.models, m)
}

// ofTable returns the model of a table of c.
func (f *Front) ofTable(c *config.Config, t *config.Model) (*served, error) {
	cfg, err := c.ForModel(t)
	if err != nil {
		return nil, err
	}
	ownCache(cfg, t.Name)
	return &served{f: f, name: t.Name, aliases: t.Aliases, cfg: cfg, table: t, configured: true, pinned: t.Pinned,
		idle: f.idleOf(t.IdleUnload, t == c.DefaultModel())}, nil
}

// ownCache gives a model of several a separate cache folder: a process locks the folder, and opens nothing else.
func ownCache(cfg *config.Config, name string) {
	if cfg.CacheDir != "" {
		cfg.CacheDir = filepath.Join(cfg.CacheDir, engineproc.FileName(name))
	}
}

// idleOf returns the time without a request until a model is unloaded, of which its table says as much.
func (f *Front) idleOf(said time.Duration, def bool) time.Duration {
	switch {
	case said >= 0:
		return said
	case def && !f.cfg.Given("idle-unload"):
		return 0 // a server of one model keeps it, and its prefixes
	}
	return f.cfg.IdleUnload
}

// reload scans the folders, and reads the file of --models-preset again. Models whose section has changed or gone are
// unloaded when their running answers have ended; a new model is loaded by the first request for it. A file with an
// error changes nothing.
func (f *Front) reload(ctx context.Context) *wire.Error {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	f.removing.Lock()
	defer f.removing.Unlock()
	if f.found.store != nil {
		f.rescan()
	}
	if f.cfg.ModelsPreset == "" {
		return nil
	}
	var is []*served
	var def *served
	if !f.call(func() {
		is, def = slices.DeleteFunc(slices.Clone(f.models), func(m *served) bool { return !m.configured }), f.def
	}) {
		return shuttingDown()
	}
	list, tables, err := f.reread(is, def)
	if err != nil {
		return &wire.Error{Code: wire.BadRequest, Message: clierr.Text(err) + "; the models stay as they were"}
	}
	var gone []*served
	for _, m := range is {
		if _, stays := tables[m]; !stays {
			gone = append(gone, m)
		}
	}
	refused := &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second,
		Message: "the presets are read again, and the model's has changed"}
	left, alive := f.retireAll(ctx, func() []*served { return gone }, refused)
	switch {
	case !alive:
		return shuttingDown()
	case left > 0:
		f.call(func() { reinstate(gone) })
		return &wire.Error{Code: wire.ModelUnready, RetryAfter: 10 * time.Second, Message: fmt.Sprintf(
			"%d models whose presets have changed still answer requests; reload when they have ended", left)}
	}
	if !f.call(func() { f.replace(list, tables, gone) }) {
		return shuttingDown()
	}
	f.reloads.Add(1)
	f.log.Info("presets read again", "file", f.cfg.ModelsPreset, "models", len(list), "gone", len(gone))
	return nil
}

// reread returns the models of the configuration as it is now, the default one first, and their tables. Those of is
// that have not changed are among them.
func (f *Front) reread(is []*served, def *served) (list []*served, tables map[*served]*config.Model, err error) {
	c, err := f.cfg.Reread()
	if err != nil {
		return nil, nil, err
	}
	for _, w := range c.Warnings {
		f.log.Warn(w)
	}
	tables = map[*served]*config.Model{}
	if c.DefaultModel() == nil { // it is that of --model
		list, tables[def] = append(list, def), nil
	}
	for i := range c.Models {
		t := &c.Models[i]
		byDefault := t == c.DefaultModel()
		at := slices.IndexFunc(is, func(m *served) bool {
			return m.table != nil && like(m.table, t) && (m == def) == byDefault
		})
		var m *served
		if at >= 0 {
			m = is[at]
		} else if m, err = f.ofTable(c, t); err != nil {
			return nil, nil, err
		}
		tables[m] = t
		if byDefault {
			list = slices.Insert(list, 0, m)
		} else {
			list = append(list, m)
		}
	}
	return list, tables, nil
}

// like reports whether two tables are served alike.
func like(a, b *config.Model) bool {
	x := *a
	x.Doubled = b.Doubled // concerns lists alone
	return reflect.DeepEqual(&x, b)
}

// reinstate lets requests have models again that were to go. Poller's goroutine.
func reinstate(list []*served) {
	for _, m := range list {
		if m.down = nil; m.state == down {
			m.state = unloaded
		}
	}
}

// replace puts list in the place of the configured models. Poller's goroutine.
func (f *Front) replace(list []*served, tables map[*served]*config.Model, gone []*served) {
	found := slices.DeleteFunc(f.models, func(m *served) bool { return m.configured })
	f.models, f.names = nil, map[string]*served{}
	for _, m := range list {
		m.table = tables[m]
		f.add(m)
	}
	f.models = append(f.models, found...)
	for _, m := range gone {
		if f.names[strings.ToLower(m.name)] == nil {
			f.removed.Add(m.name)
		}
	}
	before := f.def
	f.def = list[0]
	if c := f.found.catalog; c != nil {
		f.scanned(c) // names may mean other models now
	}
	if f.def != before {
		f.want(f.def) // as at the start
	}
}
