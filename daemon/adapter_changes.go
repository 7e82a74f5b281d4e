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
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Adapters that requests load and unload. The file is opened by the front, which passes the descriptor: a confined
// engine process cannot open it. The decode loop gives it to the engine between two steps, which reads its weights.

// changeAdapter carries out a change. f is the file of an adapter that is loaded, and stays the caller's.
func (s *Server) changeAdapter(c *AdapterChange, f *os.File) ([]reports.InfoAdapter, *wire.Error) {
	l, m := s.loop.Load(), s.model.Load()
	if l == nil || m == nil {
		return nil, admission.StillLoading(s.about.LoadProgress())
	}
	a := config.LoRA{Name: c.Load.Name, File: c.Load.File, Scale: c.Load.Scale}
	var do func(l *loop) *wire.Error
	if c.Unload {
		do = func(l *loop) *wire.Error {
			gone := m.Adapters.Remove(a.Name)
			if gone == nil {
				return adapters.None(a.Name)
			}
			l.model.mixes.Leave(gone)
			return nil
		}
	} else {
		if m.Adapters == nil {
			return nil, &wire.Error{Code: wire.NotSupported, Message: "this engine takes no adapters"}
		}
		read, err := adapters.Read(a, f)
		if err != nil {
			return nil, adapters.CannotLoad(a, err)
		}
		do = func(l *loop) *wire.Error {
			old, err := m.Adapters.Add(l.eng, read, c.Load.Replace)
			if err != nil {
				return adapters.CannotLoad(a, err)
			}
			l.model.mixes.Leave(old)
			return nil
		}
	}
	var e *wire.Error
	done := make(chan struct{})
	if !l.mail.Put(command{kind: cmdFit, ask: func(l *loop, _ time.Time) {
		if e = admission.ShuttingDown(); !l.end.stop && !l.end.over {
			e = do(l)
		}
		close(done)
	}}) {
		return nil, admission.ShuttingDown()
	}
	<-done
	if e != nil {
		return nil, e
	}
	s.metrics.AdapterChanges.Inc()
	verb := "an adapter was loaded"
	if c.Unload {
		verb = "an adapter was unloaded"
	}
	s.log.Info(verb, "adapter", a.Name, "file", a.File)
	return m.Adapters.Info(), nil
}

// AdapterTaken and OpenAdapter are those of package adapters, for the front.
func AdapterTaken(name string) *wire.Error { return adapters.Taken(name) }

func OpenAdapter(q *wire.LoadAdapter) (*os.File, *wire.Error) { return adapters.OpenNamed(q) }

// LoadAdapter loads an adapter.
func (s web) LoadAdapter(_ context.Context, q *wire.LoadAdapter) ([]reports.InfoAdapter, error) {
	f, e := adapters.OpenNamed(q)
	if e != nil {
		return nil, (*api.Error)(e)
	}
	defer f.Close()
	return changed(s.changeAdapter(&AdapterChange{Load: *q}, f))
}

// UnloadAdapter unloads an adapter.
func (s web) UnloadAdapter(_ context.Context, _, name string) ([]reports.InfoAdapter, error) {
	return changed(s.changeAdapter(&AdapterChange{Load: wire.LoadAdapter{Name: name}, Unload: true}, nil))
}

func changed(list []reports.InfoAdapter, e *wire.Error) ([]reports.InfoAdapter, error) {
	if e != nil {
		return nil, (*api.Error)(e)
	}
	return list, nil
}

// hearAdapter carries out a change that the front asks for, and answers it.
func (f *frontLink) hearAdapter(s *Server, m ipc.LinkMessage) {
	var c AdapterChange
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
		out := AdapterChanged{Ticket: c.Ticket}
		list, bad := s.changeAdapter(&c, file)
		if out.List = list; bad != nil {
			out.Code, out.Error = bad.Code, bad.Message
		}
		_ = f.link.Send(LinkAdapter, 0, -1, mustJSON(out)) // fails when the front has ended
	}()
}
