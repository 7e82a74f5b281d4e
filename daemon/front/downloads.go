package front

import (
	"cmp"
	"context"
	"net/http"
	"os"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/changes"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/models/pull"
)

// Models that a request downloads: package models/download runs the processes; here is what the front adds: who may
// ask, where models go, and that a model that has arrived can be named at once.

// openDownloads makes the manager of downloads.
func (f *Front) openDownloads() {
	p := &download.Program{Path: f.opts.Program, Args: []string{download.Arg}, Stderr: f.opts.Stderr}
	f.downloads = download.NewManager(download.Config{Pull: p.Pull, Job: f.job, Arrived: f.arrived})
}

// job returns the job of a download: the environment says where the hub is, and with which token.
func (f *Front) job(name string) (download.Job, error) {
	cfg, err := pull.FromEnv(os.Getenv)
	if err != nil {
		return download.Job{}, err
	}
	if f.cfg.Offline || cfg.Offline {
		return download.Job{}, &download.Failure{Kind: download.KindOffline, Text: "this server does not download: " +
			"it was started with --offline, UMA_OFFLINE or HF_HUB_OFFLINE; start it without them"}
	}
	memory := hostmem.Read()
	return download.Job{Name: name, Dir: f.found.store.Dir(), Endpoint: cfg.Endpoint, Token: cfg.Token,
		Memory: cmp.Or(memory.Available, memory.Total), Agent: "uma-serve/" + buildinfo.Version,
		Sandbox: f.cfg.Sandbox}, nil
}

// arrived lets requests name a model that has been downloaded. What was known of an older file of that path is
// forgotten, unless it is loaded.
func (f *Front) arrived(d *download.Done) {
	f.log.Info("downloaded", "model", d.Name, "bytes", d.Bytes, "file", d.Files[0])
	f.call(func() {
		for _, m := range f.models {
			if m.proc == nil && m.state != queued && m.state != starting && m.file == d.Files[0] {
				m.demand, m.located = nil, nil
				if m.state == down {
					m.state, m.down = unloaded, nil
				}
			}
		}
	})
	f.rescan()
}

// rescan scans the folders again, after they were changed. Not on the poller's goroutine.
func (f *Front) rescan() {
	c, err := f.found.store.Scan(f.ctx)
	if err == nil {
		f.call(func() { f.scanned(c) })
	}
}

// Download begins the download of a model, or joins the one that runs. asked is the name as the client has written it.
// keep: it continues when the client has left.
func (f *Front) Download(name, asked string, keep bool) (*download.Ticket, *wire.Error) {
	t, err := f.downloads.Start(name, asked, keep)
	if err != nil {
		return nil, changes.DownloadError(err)
	}
	if !t.Joined {
		f.log.Info("downloading", "model", name, "dir", f.found.store.Dir())
	}
	return t, nil
}

// Downloads returns those that run and the last that have ended.
func (f *Front) Downloads() []download.State { return f.downloads.List() }

// cancelDownload cancels the download of a name, in whichever spelling it was asked for; false: none runs.
func (f *Front) cancelDownload(ctx context.Context, name string) bool {
	return f.downloads.Cancel(ctx, name) || f.downloads.Cancel(ctx, download.RouterName(name))
}

// changeable reports whether models can be downloaded and deleted; it answers where they cannot.
func (f *Front) changeable(w http.ResponseWriter, r *http.Request) bool {
	if _, why := f.May(r); why != "" {
		f.answerError(w, r, &wire.Error{Code: wire.NotSupported, Message: why})
		return false
	}
	return true
}

// serveDownload answers POST /models: the download of a model begins.
func (f *Front) serveDownload(w http.ResponseWriter, r *http.Request) {
	name, ok := f.changed(w, r)
	if !ok || !f.changeable(w, r) {
		return
	}
	if f.has(name) {
		f.answerError(w, r, &wire.Error{Code: wire.BadRequest, Message: "model " + quoted(name) + " is here already; " +
			"DELETE /models?model=… deletes it"})
		return
	}
	t, e := f.Download(download.RouterName(name), name, true)
	if e != nil {
		f.answerError(w, r, e)
		return
	}
	t.Release()
	api.AnswerJSON(w, http.StatusOK, map[string]any{"success": true,
		"status": reports.ServedStatus{Value: string(download.Downloading)}})
}

// has reports whether a name names a model that can be served.
func (f *Front) has(name string) (yes bool) {
	f.rescan()
	f.call(func() {
		m := f.find(name)
		yes = name != "" && m != nil && f.own(m, name)
	})
	return yes
}

// serveDelete answers DELETE /models?model=NAME.
func (f *Front) serveDelete(w http.ResponseWriter, r *http.Request) {
	if !f.mayChange(w, r) || !f.changeable(w, r) {
		return
	}
	name := r.URL.Query().Get("model")
	var e *wire.Error
	switch {
	case name == "":
		e = &wire.Error{Code: wire.BadRequest, Message: "name the model in the query: DELETE /models?model=NAME"}
	default:
		e = f.Remove(r.Context(), name)
	}
	if e != nil {
		f.answerError(w, r, e)
		return
	}
	api.AnswerJSON(w, http.StatusOK, map[string]bool{"success": true})
}
