package front

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/changes"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Adapters that requests load and unload. The front opens the file and passes it to the model's process, which may open
// none of a path that it was not started with. A later process of the model loads the same adapters.

// adapterHost is the Front as changes.AdapterHost.
type adapterHost struct{ f *Front }

var _ changes.AdapterHost = adapterHost{}

// adapterSet are the adapters of a model. Poller's goroutine.
type adapterSet struct {
	list    []config.LoRA    // paths are absolute
	added   []string         // those of list that a request has loaded
	bytes   map[string]int64 // of added, by name, in the model's demand
	tickets uint64
	waiting map[uint64]chan<- link.AdapterChanged // changes that the model's process carries out
}

// newAdapters returns the adapters of a configuration.
func newAdapters(c *config.Config) adapterSet {
	list, _ := c.LoRAs() // validated
	for i := range list {
		if path, err := filepath.Abs(list[i].File); err == nil {
			list[i].File = path
		}
	}
	return adapterSet{list: list, bytes: map[string]int64{}, waiting: map[uint64]chan<- link.AdapterChanged{}}
}

// index returns the place of an adapter; -1: there is none of this name.
func (s *adapterSet) index(name string) int {
	return slices.IndexFunc(s.list, func(a config.LoRA) bool { return strings.EqualFold(a.Name, name) })
}

// option returns the values of --lora.
func (s *adapterSet) option() (out []string) {
	for _, a := range s.list {
		out = append(out, a.String())
	}
	return out
}

// Administers reports whether a request's client may change which adapters there are.
func (h adapterHost) Administers(r *http.Request) bool { return h.f.privileged(r) }

// LoadAdapter has the process of the model load an adapter. A model that is not loaded is loaded for it.
func (h adapterHost) LoadAdapter(ctx context.Context, q *wire.LoadAdapter) ([]reports.InfoAdapter, error) {
	file, e := adapters.OpenNamed(q)
	if e != nil {
		return nil, (*api.Error)(e)
	}
	defer file.Close()
	f := h.f
	model := q.Model
	if model == "" {
		f.call(func() { model = f.def.name })
	}
	size := int64(0)
	if st, err := file.Stat(); err == nil {
		size = st.Size()
	}
	if _, e := f.Load(ctx, model); e != nil {
		return nil, (*api.Error)(e)
	}
	list, e := f.changeAdapter(ctx, model, &link.AdapterChange{Load: *q}, file, size)
	if e != nil {
		return nil, (*api.Error)(e)
	}
	return list, nil
}

// UnloadAdapter has the process of the model unload an adapter.
func (h adapterHost) UnloadAdapter(ctx context.Context, model, name string) ([]reports.InfoAdapter, error) {
	f := h.f
	if model == "" {
		f.call(func() { // the adapter's name is its model's
			if m := f.names[strings.ToLower(name)]; m != nil && m.lora.index(name) >= 0 {
				model = m.name
			} else {
				model = f.def.name
			}
		})
	}
	c := &link.AdapterChange{Load: wire.LoadAdapter{Name: name}, Unload: true}
	list, e := f.changeAdapter(ctx, model, c, nil, 0)
	if e != nil {
		return nil, (*api.Error)(e)
	}
	return list, nil
}

// changeAdapter has the process of a model carry out a change, and keeps it for the next processes. A model that is not
// loaded only forgets an adapter. file is an adapter's file of size bytes.
func (f *Front) changeAdapter(ctx context.Context, model string, c *link.AdapterChange, file *os.File,
	size int64) (list []reports.InfoAdapter, e *wire.Error) {
	done := make(chan link.AdapterChanged, 1)
	asked := false
	ask := func(m *served) *wire.Error {
		i := m.lora.index(c.Load.Name)
		switch {
		case c.Unload && i < 0:
			return wire.Errorf(wire.ModelNotFound, "model %s has no adapter %.100q%s", m.name, c.Load.Name,
				m.haveAdapters())
		case !c.Unload && i >= 0 && !c.Load.Replace:
			return adapters.Taken(c.Load.Name)
		case !c.Unload && !m.configured:
			return wire.Errorf(wire.NotSupported, "model %s was found on this machine; adapters are for the default "+
				"model and those with a table [models.NAME]", m.name)
		case !c.Unload && !f.cfg.Memory.Auto && f.used()+size > f.limit:
			return wire.Errorf(wire.ModelTooLarge, "the adapter takes %s, and the models that are loaded leave %s of "+
				"--memory: unload one, or raise --memory", ui.Bytes(uint64(size)), ui.Bytes(uint64(max(f.limit-f.used(),
				0))))
		case m.state != ready && c.Unload && m.proc == nil:
			f.forgetAdapter(m, i)
			list = m.adaptersOf()
			return nil
		case m.state != ready || m.proc.dead:
			return &wire.Error{Code: wire.ModelUnready, RetryAfter: time.Second,
				Message: fmt.Sprintf("model %s is not ready; try again when it is", m.name)}
		}
		m.lora.tickets++
		c.Ticket = m.lora.tickets
		fd := -1
		if file != nil {
			fd = int(file.Fd())
		}
		if err := m.proc.link.Send(link.Adapter, 0, fd, api.MustJSON(c)); err != nil {
			return &wire.Error{Code: wire.InternalFailure, Message: "ask the engine process: " + err.Error()}
		}
		m.lora.waiting[c.Ticket] = done
		asked = true
		return nil
	}
	if _, e = f.do(ctx, model, ask); e != nil || !asked {
		return list, e
	}
	answer := <-done // linkDown answers for a process that has ended
	// An adapter that the process left out when it began is forgotten, too.
	leftOut := c.Unload && answer.Code == wire.ModelNotFound
	if answer.Error != "" && !leftOut {
		return nil, &wire.Error{Code: answer.Code, Message: answer.Error}
	}
	_, e = f.do(ctx, model, func(m *served) *wire.Error {
		i := m.lora.index(c.Load.Name)
		if i >= 0 {
			f.forgetAdapter(m, i)
		}
		if !c.Unload {
			a := config.LoRA{Name: c.Load.Name, File: c.Load.File, Scale: c.Load.Scale}
			m.lora.list, m.lora.added = append(m.lora.list, a), append(m.lora.added, a.Name)
			m.lora.bytes[a.Name] = size
			m.demand.Fixed += size
			f.nameAdapters(m)
		}
		return nil
	})
	return answer.List, e
}

// forgetAdapter removes an adapter of a model from what its next processes load, and its names.
func (f *Front) forgetAdapter(m *served, i int) {
	name := m.lora.list[i].Name
	if n, ok := m.lora.bytes[name]; ok {
		m.demand.Fixed -= n
		delete(m.lora.bytes, name)
	}
	m.lora.list = slices.Delete(m.lora.list, i, i+1)
	m.lora.added = slices.DeleteFunc(m.lora.added, func(n string) bool { return strings.EqualFold(n, name) })
	for fold, of := range f.names {
		if of == m && m.adapterName(fold, name) {
			delete(f.names, fold)
		}
	}
	for fold := range m.called {
		if m.adapterName(fold, name) {
			delete(m.called, fold)
		}
	}
	m.tellNames()
	for _, other := range f.models { // that had to give way
		f.nameAdapters(other)
	}
}

// adapterName reports whether a lower-cased name names an adapter, or MODEL:NAME, and not the model.
func (m *served) adapterName(fold, adapter string) bool {
	adapter = strings.ToLower(adapter)
	if fold != adapter && !strings.HasSuffix(fold, ":"+adapter) {
		return false
	}
	return !slices.ContainsFunc(m.names(), func(n string) bool { return strings.EqualFold(n, fold) })
}

// haveAdapters lists the model's adapters for an error.
func (m *served) haveAdapters() string {
	if len(m.lora.list) == 0 {
		return ""
	}
	var names []string
	for _, a := range m.lora.list {
		names = append(names, a.Name)
	}
	return "; it has " + strings.Join(names, ", ")
}

// hearAdapter passes on the answer of a process to a change.
func (m *served) hearAdapter(body []byte) {
	var a link.AdapterChanged
	if json.Unmarshal(body, &a) != nil {
		return // no answer to anything that was asked
	}
	if a.Error == "" {
		a.Code = ""
	} else if !slices.Contains(wire.Codes, a.Code) {
		a.Code = wire.InternalFailure
	}
	if done := m.lora.waiting[a.Ticket]; done != nil {
		delete(m.lora.waiting, a.Ticket)
		done <- a
	}
}

// abandonChanges answers the changes that an ended process has not answered.
func (m *served) abandonChanges() {
	for ticket, done := range m.lora.waiting {
		delete(m.lora.waiting, ticket)
		done <- link.AdapterChanged{Code: wire.EngineCrashed, Error: "the engine process has ended"}
	}
}
