package front

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/front/modelnews"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/models/store"
)

// The lists of models have the facts of the files' headers, whether the models are loaded or not. Package store caches
// a header as long as its file does not change.

// listing is a model of a list.
type listing struct {
	name    string
	aliases []string
	path    string // "" while the file is not known
	cfg     *config.Config
	digest  string // if the file's location names it
	facts   *api.Facts
	lora    []config.LoRA // of a configured model
	details *store.Model  // of a model that was found
	header  *store.Header // of the file; nil where it cannot be read

	created time.Time
	state   state
	status  daemon.EngineStatus
	expires time.Time // of a loaded model; zero: never
}

// list returns all models that a request can name, loaded or not, the default one first. Not on the poller's goroutine.
func (f *Front) list(ctx context.Context) []*listing {
	var out []*listing
	found := f.listed(f.fresh(ctx))
	untitled := ""
	f.call(func() {
		if f.any && f.def.title == "" {
			untitled = f.fileOf(f.def)
		}
	})
	if untitled != "" {
		h, _ := f.headers.Header(untitled)
		f.call(func() { f.def.entitle(h.Name) })
	}
	f.call(func() {
		by := map[string]*served{} // by file
		for _, m := range f.inOrder() {
			by[m.file+"\x00"+m.recipe] = m
			if m.configured {
				l := &listing{name: m.label(), aliases: m.aliases, path: f.fileOf(m), cfg: m.cfg, created: f.began,
					lora: slices.Clone(m.lora.list)}
				l.of(m)
				out = append(out, l)
			}
		}
		for _, of := range found {
			l := &listing{name: of.ID(), path: of.Path(), cfg: f.cfg, created: of.Modified,
				digest: strings.TrimPrefix(of.Digest, "sha256:")}
			l.details = of
			if m := by[of.Path()+"\x00"+recipeOf(of)]; m != nil {
				l.of(m)
			}
			out = append(out, l)
		}
	})
	kept := out[:0]
	for _, l := range out {
		if f.describe(l) {
			kept = append(kept, l)
		}
	}
	return kept
}

// of adds the state that the front has of the model. Poller's goroutine.
func (l *listing) of(m *served) {
	l.state, l.status = m.state, m.status
	if after, leaves := m.leavesAfter(); leaves {
		l.expires = m.used.Add(after)
	}
}

// describe adds the facts of the model's file; false: the file is no model.
func (f *Front) describe(l *listing) bool {
	l.facts = &api.Facts{Asleep: true}
	l.facts.Model.Path = l.name // tells it from others whose file is not known either
	if l.path != "" {
		h, err := f.headers.Header(l.path) // of one that cannot be read the size and the digest are listed
		if err == nil && !h.Model() {
			return false
		}
		if h.Digest != "" {
			l.facts = report.ListedFacts(l.cfg, l.path, &h)
		}
		if err == nil {
			l.header = &h
		}
	}
	if l.digest != "" {
		l.facts.File.Digest = l.digest
	}
	if l.state == ready {
		l.facts.Cells, l.facts.GPU = l.status.Context, l.status.GPU
		if l.facts.Context = l.facts.Cells; !l.facts.Model.Encoder {
			l.facts.Context = l.cfg.Longest(l.facts.Cells)
		}
	}
	return true
}

// model returns the listing in OpenAI's form.
func (l *listing) model() reports.ServedModel {
	return reports.ServedModel{ID: l.name, Object: "model", Created: l.created.Unix(), OwnedBy: "uma-serve",
		Meta: l.facts.Meta(), Aliases: l.names(), Tags: l.tags(),
		Status: &reports.ServedStatus{Value: l.state.served(), Failed: l.state == down}}
}

// names returns the further names of the model that lists show. For that of --alias they are all of these, as in
// llama-server's list; it answers to the name of its file, too.
func (l *listing) names() []string {
	if names := l.cfg.Names(); l.details == nil && len(names) > 0 {
		return names
	}
	return l.aliases
}

// tags returns those of --tags, which the default model has.
func (l *listing) tags() []string {
	if l.details != nil {
		return nil
	}
	return l.cfg.Tags
}

// servedModels returns the list in OpenAI's form.
func (f *Front) servedModels(ctx context.Context) []reports.ServedModel {
	out := []reports.ServedModel{}
	for _, l := range f.list(ctx) {
		out = append(append(out, l.model()), l.adapters()...)
	}
	return out
}

func (f *Front) serveModels(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("reload") != "" {
		if !f.privileged(r) {
			w.Header().Set(api.HeaderIgnored, "reload") // the list is every client's, models are not
		} else if e := f.reload(r.Context()); e != nil {
			f.answerError(w, r, e)
			return
		}
	}
	list := f.fittingModels(r.Context())
	for _, d := range f.downloads.List() {
		if d.Status.Runs() {
			list = append(list, reports.ServedModel{ID: d.Asked, Object: "model", Created: d.Started.Unix(),
				OwnedBy: "uma-serve", Status: &reports.ServedStatus{Value: string(download.Downloading),
					Progress: modelnews.ProgressOf(&d)}})
		}
	}
	answerJSON(w, http.StatusOK, reports.ServedModels{Object: "list", Data: list})
}

func (f *Front) serveModel(w http.ResponseWriter, r *http.Request) {
	id, of := r.PathValue("id"), ""
	list := f.list(r.Context())
	var unknown *wire.Error
	f.call(func() {
		if m := f.find(id); m != nil && f.own(m, id) {
			of = m.label()
		} else {
			unknown = f.unknownModel(id)
		}
	})
	for _, l := range list {
		if l.name == of {
			answerJSON(w, http.StatusOK, l.model())
			return
		}
	}
	if unknown == nil { // it has just come or gone
		unknown = &wire.Error{Code: wire.ModelNotFound, Message: fmt.Sprintf("there is no model %.100q here", id)}
	}
	f.answerError(w, r, unknown)
}

// ollama returns the list in the form of ollama's API.
func (f *Front) ollama(list []*listing) (out []ollama.Served) {
	for _, l := range list {
		out = append(out, ollama.Served{Name: l.name, Facts: l.facts, Since: f.began, Expires: l.expires})
	}
	return out
}

func (f *Front) serveTags(w http.ResponseWriter, r *http.Request) {
	answerJSON(w, http.StatusOK, ollama.Tags(f.ollama(f.list(r.Context()))))
}

func (f *Front) servePS(w http.ResponseWriter, r *http.Request) {
	var loaded []*listing
	for _, l := range f.list(r.Context()) {
		if l.state == ready {
			loaded = append(loaded, l)
		}
	}
	answerJSON(w, http.StatusOK, ollama.Running(f.ollama(loaded), time.Now()))
}

// openHeaders returns the store that caches headers: that of the machine's models if those are served, else a new one.
func (f *Front) openHeaders() *store.Store {
	if f.found.store != nil {
		return f.found.store
	}
	return store.New(f.cfg.ModelsDir, nil)
}
