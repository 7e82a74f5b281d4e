package report

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/runtime"
)

// Listing is a model of a list, loaded or not.
type Listing struct {
	Name    string
	Aliases []string
	Path    string // "" while the file is not known
	Config  *config.Config
	Digest  string        // if the file's location names it
	LoRA    []config.LoRA // of a configured model
	Found   *store.Model  // of a model that was found; Config is the daemon's then
	Created time.Time
	Expires time.Time // of a loaded model; zero: never
	Status  reports.ServedStatus
	Ready   bool
	Cells   int // with Ready: of its pool
	GPU     bool

	Facts  *api.Facts    // by Describe
	Header *store.Header // of the file; nil where it cannot be read
}

// Describe adds the facts of the model's file; false: the file is no model.
func (l *Listing) Describe(headers *store.Store) bool {
	l.Facts = &api.Facts{Asleep: true}
	l.Facts.Model.Path = l.Name // tells it from others whose file is not known either
	if l.Path != "" {
		h, err := headers.Header(l.Path) // of one that cannot be read the size and the digest are listed
		if err == nil && !h.Model() {
			return false
		}
		if h.Digest != "" {
			l.Facts = ListedFacts(l.Config, l.Path, &h)
		}
		if err == nil {
			l.Header = &h
		}
	}
	if l.Digest != "" {
		l.Facts.File.Digest = l.Digest
	}
	if l.Ready {
		l.Facts.Cells, l.Facts.GPU = l.Cells, l.GPU
		if l.Facts.Context = l.Facts.Cells; !l.Facts.Model.Encoder {
			l.Facts.Context = l.Config.Longest(l.Facts.Cells)
		}
	}
	return true
}

// Model returns the listing in OpenAI's form.
func (l *Listing) Model() reports.ServedModel {
	status := l.Status
	m := reports.ServedModel{ID: l.Name, Object: "model", Created: l.Created.Unix(), OwnedBy: "uma-serve",
		Meta: l.Facts.Meta(), Aliases: l.Aliases, Status: &status}
	if l.Found != nil {
		return m
	}
	// The further names of the model of --alias are all of these, as in llama-server's list; it answers to the name of
	// its file, too.
	if names := l.Config.Names(); len(names) > 0 {
		m.Aliases = names
	}
	m.Tags = l.Config.Tags
	return m
}

// Adapters returns the adapters of the model in OpenAI's form.
func (l *Listing) Adapters() (out []reports.ServedModel) {
	if l.Found != nil {
		return nil
	}
	model := l.Model()
	for _, a := range l.LoRA {
		out = append(out, model.Adapter(a.Name))
	}
	return out
}

// Demand returns the memory that the model needs; nil: it is not known.
func (l *Listing) Demand(backends runtime.Backends) *config.Demand {
	if l.Header == nil {
		return nil
	}
	cfg := *l.Config
	if l.Found != nil { // found models have no draft model and no adapters
		cfg.DraftModel, cfg.LoRA = "", nil
	}
	cfg.Backends = backends
	d, err := cfg.DemandOf(&l.Header.Info)
	if err != nil {
		return nil
	}
	return &d
}

// FactsCache keeps the facts from one file, valid while the file's size and time stay the same.
type FactsCache struct {
	mu       sync.Mutex
	size     int64
	modified time.Time
	facts    *api.Facts
	err      error
}

// Of reads the header of the file at path, unless that was done and the file is as it was.
func (k *FactsCache) Of(c *config.Config, path string) (*api.Facts, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if k.size != st.Size() || !k.modified.Equal(st.ModTime()) || k.facts == nil && k.err == nil {
		k.size, k.modified = st.Size(), st.ModTime()
		k.facts, k.err = FileFacts(c, path)
	}
	return k.facts, k.err
}

// UnknownModel returns the error for a name that no model has, with those that models have.
func UnknownModel(name string, names []string) *wire.Error {
	slices.Sort(names)
	names = slices.Compact(names)
	text := fmt.Sprintf("there is no model %.100q here", name)
	if near := clierr.Nearest(strings.ToLower(name), names); near != "" {
		text += fmt.Sprintf("; did you mean %q?", near)
	} else {
		text += "."
	}
	const most = 8
	if len(names) > most {
		text += fmt.Sprintf(" There are %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	} else {
		text += " There are: " + strings.Join(names, ", ")
	}
	return &wire.Error{Code: wire.ModelNotFound, Message: text}
}
