package front

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/front/modelnews"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/models/store"
)

// The lists of models have the facts of the files' headers, whether the models are loaded or not. Package store caches
// a header as long as its file does not change.

// list returns all models that a request can name, loaded or not, the default one first. Not on the poller's goroutine.
func (f *Front) list(ctx context.Context) []*report.Listing {
	var out []*report.Listing
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
				l := &report.Listing{Name: m.label(), Aliases: m.aliases, Path: f.fileOf(m), Config: m.cfg,
					Created: f.began, LoRA: slices.Clone(m.lora.list)}
				m.list(l)
				out = append(out, l)
			}
		}
		for _, of := range found {
			l := &report.Listing{Name: of.ID(), Path: of.Path(), Config: f.cfg, Created: of.Modified, Found: of,
				Digest: strings.TrimPrefix(of.Digest, "sha256:"),
				Status: reports.ServedStatus{Value: unloaded.served()}}
			if m := by[of.Path()+"\x00"+recipeOf(of)]; m != nil {
				m.list(l)
			}
			out = append(out, l)
		}
	})
	kept := out[:0]
	for _, l := range out {
		if l.Describe(f.headers) {
			kept = append(kept, l)
		}
	}
	return kept
}

// list adds the state of the model to its listing. Poller's goroutine.
func (m *served) list(l *report.Listing) {
	l.Status = reports.ServedStatus{Value: m.state.served(), Failed: m.state == down}
	l.Ready, l.Cells, l.GPU = m.state == ready, m.status.Context, m.status.GPU
	if after, leaves := m.leavesAfter(); leaves {
		l.Expires = m.used.Add(after)
	}
}

// servedModels returns the list in OpenAI's form.
func (f *Front) servedModels(ctx context.Context) []reports.ServedModel {
	out := []reports.ServedModel{}
	for _, l := range f.list(ctx) {
		out = append(append(out, l.Model()), l.Adapters()...)
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
	api.AnswerJSON(w, http.StatusOK, reports.ServedModels{Object: "list", Data: list})
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
		if l.Name == of {
			api.AnswerJSON(w, http.StatusOK, l.Model())
			return
		}
	}
	if unknown == nil { // it has just come or gone
		unknown = wire.Errorf(wire.ModelNotFound, "there is no model %.100q here", id)
	}
	f.answerError(w, r, unknown)
}

// ollama returns the list in the form of ollama's API.
func (f *Front) ollama(list []*report.Listing) (out []ollama.Served) {
	for _, l := range list {
		out = append(out, ollama.Served{Name: l.Name, Facts: l.Facts, Since: f.began, Expires: l.Expires})
	}
	return out
}

func (f *Front) serveTags(w http.ResponseWriter, r *http.Request) {
	api.AnswerJSON(w, http.StatusOK, ollama.Tags(f.ollama(f.list(r.Context()))))
}

func (f *Front) servePS(w http.ResponseWriter, r *http.Request) {
	var loaded []*report.Listing
	for _, l := range f.list(r.Context()) {
		if l.Ready {
			loaded = append(loaded, l)
		}
	}
	api.AnswerJSON(w, http.StatusOK, ollama.Running(f.ollama(loaded), time.Now()))
}

// openHeaders returns the store that caches headers: that of the machine's models if those are served, else a new one.
func (f *Front) openHeaders() *store.Store {
	if f.found.store != nil {
		return f.found.store
	}
	return store.New(f.cfg.ModelsDir, nil)
}
