package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
)

// web is a Server as package httpd uses it.
type web struct{ *Server }

// Open opens a client within the process.
func (s web) Open(peer ipc.Peer) (*ipc.Local, error) { return s.poller.Open(peer) }

// CancelNamed cancels.
func (s web) CancelNamed(owner uint32, id string) bool {
	mine := s.sessions.named(owner, id)
	for _, r := range mine {
		s.cancel(r)
	}
	return len(mine) > 0
}

// EndThinkNamed ends thoughts.
func (s web) EndThinkNamed(owner uint32, id string) bool {
	mine := s.sessions.named(owner, id)
	for _, r := range mine {
		s.endThinking(r)
	}
	return len(mine) > 0
}

// named returns owner's requests with this id, or with one of the ids of further answers (n > 1): id-1, id-2, …
func (t *sessions) named(owner uint32, id string) (found []*request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c, live := range t.live {
		if c.UID() != owner {
			continue
		}
		for _, r := range live {
			if rest, ok := strings.CutPrefix(r.wireID, id); ok &&
				(rest == "" || rest[0] == '-' && strings.Trim(rest[1:], "0123456789") == "") {
				found = append(found, r)
			}
		}
	}
	return found
}

// Facts returns the loaded model's properties, nil while it loads.
func (s web) Facts() *api.Facts {
	m := s.model.Load()
	if m == nil {
		return nil
	}
	return report.LoadedFacts(s.cfg, m, s.file())
}

// Info is the info report.
func (s web) Info() reports.Info { return s.info() }

// Health is the health report.
func (s web) Health() reports.Health { return s.health() }

// LoadProgress is the fraction of the model that is loaded.
func (s web) LoadProgress() float64 { return s.loadProgress() }

// Model returns the model's name in answers; "" while it loads, unless a front has named it.
func (s web) Model() string {
	if m := s.model.Load(); m != nil {
		return m.Info.Name
	}
	if e := s.parts.engine; e != nil && !e.start.FileName {
		return e.start.Model
	}
	return ""
}

// Models lists the loaded model.
func (s web) Models() []reports.ServedModel {
	m := s.model.Load()
	if m == nil {
		return []reports.ServedModel{}
	}
	model := reports.ServedModel{
		ID: m.Info.Name, Object: "model", Created: s.in.Begun.Unix(), OwnedBy: "uma-serve",
		Meta: (&api.Facts{Model: reports.InfoModel{ModelInfo: m.Info}, Context: m.Longest()}).Meta(),
	}
	list := []reports.ServedModel{model}
	for _, a := range s.Adapters() {
		list = append(list, model.Adapter(a.Name))
	}
	return list
}

// Adapters lists the adapters of the loaded model.
func (s web) Adapters() []reports.InfoAdapter {
	if m := s.model.Load(); m != nil {
		return m.Adapters.Info()
	}
	return nil
}

// SetScales sets the scales of requests that choose no adapters.
func (s web) SetScales(list []wire.LoRA) error {
	m := s.model.Load()
	if m == nil {
		return &api.Error{Code: wire.ModelUnready, Message: "the model is loading"}
	}
	if err := m.Adapters.SetScales(list); err != nil {
		return &api.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	return nil
}

// Await waits for the model.
func (s web) Await(ctx context.Context) error {
	if s.model.Load() != nil {
		return nil
	}
	select {
	case <-s.opened.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.model.Load() == nil {
		e := *s.opened.failure
		return (*api.Error)(&e)
	}
	return nil
}

// Render returns the prompt of r.
func (s web) Render(ctx context.Context, owner uint32, r *wire.Request) (*api.Prompt, error) {
	prepare.WithSystem(s.cfg, r)
	m := s.model.Load()
	var views []*runtime.View
	if m.LookAt(r) {
		var bad *wire.Error
		goOn := func() bool { return ctx.Err() == nil && !s.draining.Load() }
		views, bad = m.View(owner, r, s.viewing.Turn(owner, ctx.Done(), goOn))
		switch {
		case bad != nil:
			return nil, (*api.Error)(bad)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !goOn():
			return nil, (*api.Error)(admission.ShuttingDown())
		}
	}
	text, tokens, e := m.Render(owner, r, views)
	if e != nil {
		return nil, (*api.Error)(e)
	}
	return &api.Prompt{Text: text, Tokens: tokens}, nil
}

// Tokenize tokenizes text.
func (s web) Tokenize(text string, special, markers bool) ([]int32, error) {
	tokens, err := s.model.Load().Vocab.Tokenize(nil, text, special, markers)
	if err != nil {
		return nil, api.Refuse(err.Error())
	}
	return tokens, nil
}

// Detokenize returns the bytes of tokens.
func (s web) Detokenize(tokens []int32) (text []byte, err error) {
	m := s.model.Load()
	if m == nil {
		return nil, (*api.Error)(admission.StillLoading(s.loadProgress()))
	}
	for _, t := range tokens {
		switch {
		case t < 0 || int(t) >= m.Vocab.Size():
			return nil, api.Refuse(fmt.Sprintf("token %d is not in the vocabulary of %d tokens", t, m.Vocab.Size()))
		case m.Vocab.IsControl(runtime.Token(t)):
			text = append(text, m.Vocab.Text(t)...)
		default:
			text = append(text, m.Vocab.Piece(t)...)
		}
	}
	return text, nil
}
