package daemon

import (
	"context"
	"encoding/json"
	"os"
	"syscall"
	"time"

	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Adapters that requests load and unload. The file is opened by the front, which passes the descriptor: a confined
// engine process cannot open it. The decode loop gives it to the engine between two steps, which reads its weights.

// adapterTask loads an adapter, or unloads the one of its name.
type adapterTask struct {
	adapter config.LoRA
	table   *adapters.Table
	read    *adapters.New // nil: unload
	replace bool

	bad  *wire.Error // of what the loop has done, once done is closed
	done chan struct{}
}

// changeAdapter carries out a change. f is the file of an adapter that is loaded, and stays the caller's.
func (s *Server) changeAdapter(c *link.AdapterChange, f *os.File) ([]reports.InfoAdapter, *wire.Error) {
	l, m := s.loop.Load(), s.model.Load()
	if l == nil || m == nil {
		return nil, admission.StillLoading(s.about.LoadProgress())
	}
	t := &adapterTask{adapter: config.LoRA{Name: c.Load.Name, File: c.Load.File, Scale: c.Load.Scale},
		table: m.Adapters, replace: c.Load.Replace, done: make(chan struct{})}
	verb := "an adapter was unloaded"
	if !c.Unload {
		verb = "an adapter was loaded"
		if t.table == nil {
			return nil, &wire.Error{Code: wire.NotSupported, Message: "this engine takes no adapters"}
		}
		var err error
		if t.read, err = adapters.Read(t.adapter, f); err != nil {
			return nil, adapters.CannotLoad(t.adapter, err)
		}
	}
	if !l.mail.Put(command{kind: cmdAwaited, task: t}) {
		return nil, admission.ShuttingDown()
	}
	if <-t.done; t.bad != nil {
		return nil, t.bad
	}
	s.metrics.AdapterChanges.Inc()
	s.log.Info(verb, "adapter", t.adapter.Name, "file", t.adapter.File)
	return m.Adapters.Info(), nil
}

func (t *adapterTask) run(l *loop, _ time.Time) {
	defer close(t.done)
	if l.end.stop || l.end.over {
		t.bad = admission.ShuttingDown()
		return
	}
	if t.read == nil {
		gone := t.table.Remove(t.adapter.Name)
		if gone == nil {
			t.bad = adapters.None(t.adapter.Name)
			return
		}
		l.model.mixes.Leave(gone)
		return
	}
	old, err := t.table.Add(l.eng, t.read, t.replace)
	if err != nil {
		t.bad = adapters.CannotLoad(t.adapter, err)
		return
	}
	l.model.mixes.Leave(old)
}

// LoadAdapter loads an adapter.
func (s web) LoadAdapter(_ context.Context, q *wire.LoadAdapter) ([]reports.InfoAdapter, error) {
	f, e := adapters.OpenNamed(q)
	if e != nil {
		return nil, (*api.Error)(e)
	}
	defer f.Close()
	return changed(s.changeAdapter(&link.AdapterChange{Load: *q}, f))
}

// UnloadAdapter unloads an adapter.
func (s web) UnloadAdapter(_ context.Context, _, name string) ([]reports.InfoAdapter, error) {
	return changed(s.changeAdapter(&link.AdapterChange{Load: wire.LoadAdapter{Name: name}, Unload: true}, nil))
}

func changed(list []reports.InfoAdapter, e *wire.Error) ([]reports.InfoAdapter, error) {
	if e != nil {
		return nil, (*api.Error)(e)
	}
	return list, nil
}

// hearAdapter carries out a change that the front asks for, and answers it.
func (f *frontLink) hearAdapter(s *Server, m ipc.LinkMessage) {
	var c link.AdapterChange
	if err := json.Unmarshal(m.Body, &c); err != nil || !c.Unload && m.FD < 0 {
		s.log.Error("an adapter of the front", "error", err)
		if m.FD >= 0 {
			syscall.Close(m.FD)
		}
		return
	}
	go func() {
		var file *os.File
		if m.FD >= 0 {
			file = os.NewFile(uintptr(m.FD), c.Load.File)
			defer file.Close()
		}
		out := link.AdapterChanged{Ticket: c.Ticket}
		list, bad := s.changeAdapter(&c, file)
		if out.List = list; bad != nil {
			out.Code, out.Error = bad.Code, bad.Message
		}
		_ = f.link.Send(link.Adapter, 0, -1, api.MustJSON(out)) // fails when the front has ended
	}()
}
