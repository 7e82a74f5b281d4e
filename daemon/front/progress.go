package front

import (
	"fmt"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/front/ledger"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Progress for requests that wait for a model. Once its process runs, the process has their connections and sends
// progress itself (daemon/loading.go); before, the front sends it to the framed ones. An HTTP request gets none before
// its process runs, because that process writes the head of the answer.

// maxTold is the most progress events that are sent to a connection that waits. A socket takes far more without a
// reader, so that none of them is left to send when the connection is passed.
const maxTold = 100

// note records a framed request that waits, if it wants progress events.
func note(c *ipc.Conn, payload []byte) {
	c.Routing = ipc.Routing{}
	def := wire.DefaultRequest()
	q, err := wire.Parse(new(wire.Parser), payload, &def)
	if err == nil && q.Kind == wire.KindRequest && (q.Request.Progress || q.Request.Stream && !q.Request.NoProgress) {
		c.Routing.Request, c.Routing.Since = strings.Clone(q.Request.ID), time.Now()
	}
}

// tellWaiting tells the requests that wait for the model why.
func (m *served) tellWaiting(now time.Time) {
	reason, _ := m.waitsFor()
	for _, c := range m.waiting {
		r := &c.Routing
		if r.Request == "" || r.Told == maxTold {
			continue
		}
		r.Told++
		c.Reply(wire.AppendProgress(nil, &wire.Progress{ID: r.Request, Elapsed: now.Sub(r.Since), Waiting: reason}))
	}
}

// waitsFor returns the reason for which requests wait for the model, and its text, as in a decision of why.
func (m *served) waitsFor() (reason, text string) {
	switch m.state {
	case queued:
		return "model_memory", fmt.Sprintf("It waits until model %s is loaded, which needs %s of memory: %s of %s are "+
			"in use, and other models are unloaded when they have answered.", m.name, ledger.Text(m.need()),
			ledger.Text(m.f.used()), ledger.Text(m.f.limit))
	case unloading:
		return "model_unloading", fmt.Sprintf("It waits until model %s, which is being unloaded for another one, is "+
			"loaded again.", m.name)
	}
	return "model_loading", fmt.Sprintf("It waits until model %s is loaded.", m.name)
}
