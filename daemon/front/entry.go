package front

import (
	"encoding/json"
	"net/http"

	"github.com/uma-serve/uma-serve/daemon/account"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/entry"
	httpd "github.com/uma-serve/uma-serve/daemon/http"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// openEntry binds the sockets and checks every model's configuration.
func (f *Front) openEntry() (err error) {
	f.in, err = entry.Open(f.cfg, f.log, entry.Options{Handler: handler{f}, Router: router{f},
		Elsewhere: func(r *http.Request, _ []byte) bool {
			return !ipc.Own(r.Context()) && !httpd.FrontServes(r.Method, r.URL)
		},
		Check: func() error {
			for _, m := range f.models {
				if err := m.cfg.CheckHere(); err != nil {
					return err
				}
			}
			return nil
		}})
	if err != nil {
		return err
	}
	f.loop, f.in.Web.Uploads = f.in.Loop, true
	account.Declare(f.in.Metrics) // a front without a loaded model has all series, too
	f.in.Metrics.BindLoadProgress(func() float64 { return 0 })
	f.in.Metrics.BindMemory(func() metrics.Memory {
		m := entry.Memory()
		return metrics.Memory{GoHeap: m.GoHeap, RSS: m.RSS}
	})
	return f.openEvents()
}

// startOf returns the start message for an engine process with this configuration: options, sockets and API keys.
func (f *Front) startOf(c *config.Config) (link.EngineStart, error) {
	c.KVEvents = f.cfg.KVEvents // with the port that it got
	options, sources, err := c.Encode()
	if err != nil {
		return link.EngineStart{}, err
	}
	a := f.in.Addresses()
	return link.EngineStart{Config: options, Sources: sources, Socket: a.Socket, Listen: a.Listen,
		Listeners: a.Listeners, Keys: f.apiKeys(), Sandbox: c.Sandbox, Turns: f.turns != nil}, nil
}

// apiKeys rereads the file of --api-keys if it has changed and returns the digests of its keys; nil without the option.
func (f *Front) apiKeys() json.RawMessage {
	if f.in.Access.Keys == nil {
		return nil
	}
	return f.in.Access.Keys.Keys().Digests()
}

// scrape returns the front's own metrics in Prometheus's text format.
func (f *Front) scrape() []byte { return httpd.Scrape(f.in.Metrics) }

// answerError answers an HTTP request with an error in the form of the API that its path belongs to.
func (f *Front) answerError(w http.ResponseWriter, r *http.Request, e *wire.Error) {
	f.in.Web.Fail(w, r, e)
}
