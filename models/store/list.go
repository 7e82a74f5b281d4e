package store

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/model/gguf"
)

// Entry is a model of a list, with what its header says.
type Entry struct {
	Name      string    `json:"name"`
	Aliases   []string  `json:"aliases"`
	From      Place     `json:"from"`
	Files     []string  `json:"files"` // the first is the one to open
	Bytes     int64     `json:"size_bytes"`
	Modified  time.Time `json:"modified_at"`
	Digest    string    `json:"digest,omitempty"`
	Projector string    `json:"projector,omitempty"`

	Family       string `json:"family"` // the architecture: "llama"
	Parameters   uint64 `json:"parameters"`
	Quantisation string `json:"quantisation"`
	TrainContext int64  `json:"n_ctx_train"`

	Context int64      `json:"n_ctx"`  // that Memory is reckoned for
	Memory  *gguf.Need `json:"memory"` // null when the header or the types do not tell
	Fits    *bool      `json:"fits"`   // null when Memory or the free memory is unknown
	// FitsText is the sentence of a running daemon, whose word Fits then is; "" = no daemon was asked.
	FitsText string `json:"fits_text,omitempty"`

	// Hidden: the name leads to the model of another place. This one is reached by its path.
	Hidden  bool   `json:"hidden,omitempty"`
	Problem string `json:"problem,omitempty"` // why it cannot be served; "" = it can
}

// Terms are the options that List computes memory for.
type Terms struct {
	Context      int64 // tokens; 0 = what each model is served with by default
	TypeK, TypeV string
	NoRepack     bool
	Free         uint64 // bytes of memory; 0 = unknown
}

// headerReaders bounds the files that List reads at once.
const headerReaders = 4

// List describes the models of the catalog, in its order: those that can be served, and those of which a file is
// missing or damaged. What is no model by its header is left out. The only error is ctx's.
func (c *Catalog) List(ctx context.Context, t Terms) ([]Entry, error) {
	entries := make([]*Entry, len(c.Models))
	var wait sync.WaitGroup
	next := make(chan int)
	for range headerReaders {
		wait.Go(func() {
			for i := range next {
				entries[i] = c.Entry(&c.Models[i], t)
			}
		})
	}
	for i := range c.Models {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	wait.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	leads := map[*Model]bool{}
	for _, m := range c.among(func(*Model) bool { return true }) {
		leads[m] = true
	}
	out := []Entry{}
	for i, e := range entries {
		if e != nil {
			e.Hidden = !leads[&c.Models[i]]
			out = append(out, *e)
		}
	}
	return out, nil
}

// Entry describes one model; nil when it is none by its header. A header is read once for as long as the file stays as
// it is.
func (c *Catalog) Entry(m *Model, t Terms) *Entry {
	e := &Entry{Name: m.ID(), Aliases: c.aliasesOf(m), From: m.Place, Files: m.Files, Bytes: m.Bytes,
		Modified: m.Modified,
		Digest:   m.Digest, Projector: m.Projector, Problem: m.Incomplete}
	if m.Incomplete != "" {
		return e
	}
	info, err := c.store.Header(m.Path())
	if err != nil {
		e.Problem = reason(err)
		return e
	}
	if !info.Model() {
		return nil
	}
	e.Family, e.Parameters, e.Quantisation = info.Architecture, info.Parameters, info.FileType
	e.TrainContext = info.TrainContext
	var repacked gguf.Repacking
	if !t.NoRepack {
		repacked = info.Repacked(gguf.ThisProcessor())
	}
	if e.Context = t.Context; e.Context == 0 {
		e.Context = info.Context()
	}
	need, err := info.Need(e.Context, t.TypeK, t.TypeV, repacked)
	if err != nil {
		return e
	}
	e.Memory = &need
	if t.Free > 0 {
		fits := need.Fits(t.Free)
		e.Fits = &fits
	}
	return e
}

// aliasesOf returns the aliases of a model, sorted.
func (c *Catalog) aliasesOf(m *Model) []string {
	c.once.Do(func() {
		c.aliased = map[string][]string{}
		for _, alias := range slices.Sorted(maps.Keys(c.Aliases)) {
			if found, err := c.Lookup(alias); err == nil {
				key := found.ID() + "\x00" + found.Path()
				c.aliased[key] = append(c.aliased[key], alias)
			}
		}
	})
	return append([]string{}, c.aliased[m.ID()+"\x00"+m.Path()]...)
}
