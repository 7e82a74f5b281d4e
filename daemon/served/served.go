// Package served answers what clients ask about the model that is or will be loaded, and has it do what it can do by
// itself: render prompts, tokenize. It needs neither the decode loop nor a connection.
package served

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/daemon/admission"
	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
)

// About is the model of a daemon: while it loads, and when it is loaded. The exported fields are set before a request
// comes.
type About struct {
	Config   *config.Config
	Loaded   *atomic.Pointer[prepare.Model] // nil while the model loads
	Named    string                         // the model's name while it loads; "" = none
	Begun    time.Time                      // the daemon's begin
	Draining *atomic.Bool                   // the daemon stops
	// Turn returns what a request of owner needs to have images encoded in turns.
	Turn func(owner uint32, stop <-chan struct{}, goOn func() bool) prepare.Turn

	file     func() api.File // facts about the model's file, read on first use; set before Loaded
	progress atomic.Uint32   // of the load, per mille

	once    sync.Once
	done    chan struct{} // closed when the model is loaded, or will not be
	failure *wire.Error   // the error of the load, nil without one; constant once done is closed
}

// New returns the model of a daemon that begins to load it.
func New() *About { return &About{done: make(chan struct{})} }

// Read tells what part of the model is read.
func (s *About) Read(fraction float32) { s.progress.Store(uint32(fraction * 1000)) }

// LoadProgress returns the fraction of the model that is loaded.
func (s *About) LoadProgress() float64 { return float64(s.progress.Load()) / 1000 }

// Has tells that the model is loaded; End follows when requests are answered. Once only.
func (s *About) Has(m *prepare.Model) {
	s.file = sync.OnceValue(func() api.File { return report.LoadedFile(m.Info.Path) })
	s.Loaded.Store(m)
}

// End ends the wait for the model; nil: it is loaded. Later calls do nothing.
func (s *About) End(failure *wire.Error) {
	s.once.Do(func() {
		s.failure = failure
		close(s.done)
	})
}

// Facts returns the loaded model's properties, nil while it loads.
func (s *About) Facts() *api.Facts {
	m := s.Loaded.Load()
	if m == nil {
		return nil
	}
	return report.LoadedFacts(s.Config, m, s.file())
}

// Model returns the model's name in answers; "" while it loads, unless a front has named it.
func (s *About) Model() string {
	if m := s.Loaded.Load(); m != nil {
		return m.Info.Name
	}
	return s.Named
}

// Models lists the loaded model.
func (s *About) Models() []reports.ServedModel {
	m := s.Loaded.Load()
	if m == nil {
		return []reports.ServedModel{}
	}
	model := reports.ServedModel{
		ID: m.Info.Name, Object: "model", Created: s.Begun.Unix(), OwnedBy: "uma-serve",
		Meta: (&api.Facts{Model: reports.InfoModel{ModelInfo: m.Info}, Context: m.Longest()}).Meta(),
	}
	list := []reports.ServedModel{model}
	for _, a := range s.Adapters() {
		list = append(list, model.Adapter(a.Name))
	}
	return list
}

// Adapters lists the adapters of the loaded model.
func (s *About) Adapters() []reports.InfoAdapter {
	if m := s.Loaded.Load(); m != nil {
		return m.Adapters.Info()
	}
	return nil
}

// SetScales sets the scales of requests that choose no adapters.
func (s *About) SetScales(list []wire.LoRA) error {
	m := s.Loaded.Load()
	if m == nil {
		return &api.Error{Code: wire.ModelUnready, Message: "the model is loading"}
	}
	if err := m.Adapters.SetScales(list); err != nil {
		return &api.Error{Code: wire.BadRequest, Message: err.Error()}
	}
	return nil
}

// Await waits for the model.
func (s *About) Await(ctx context.Context) error {
	if s.Loaded.Load() != nil {
		return nil
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.Loaded.Load() == nil {
		e := *s.failure
		return (*api.Error)(&e)
	}
	return nil
}

// Render returns the prompt of r.
func (s *About) Render(ctx context.Context, owner uint32, r *wire.Request) (*api.Prompt, error) {
	prepare.WithSystem(s.Config, r)
	m := s.Loaded.Load()
	var views []*runtime.View
	if m.LookAt(r) {
		var bad *wire.Error
		goOn := func() bool { return ctx.Err() == nil && !s.Draining.Load() }
		views, bad = m.View(owner, r, s.Turn(owner, ctx.Done(), goOn))
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
func (s *About) Tokenize(text string, special, markers bool) ([]int32, error) {
	tokens, err := s.Loaded.Load().Vocab.Tokenize(nil, text, special, markers)
	if err != nil {
		return nil, api.Refuse(err.Error())
	}
	return tokens, nil
}

// Detokenize returns the bytes of tokens.
func (s *About) Detokenize(tokens []int32) (text []byte, err error) {
	m := s.Loaded.Load()
	if m == nil {
		return nil, (*api.Error)(admission.StillLoading(s.LoadProgress()))
	}
	for _, t := range tokens {
		switch {
		case t < 0 || int(t) >= m.Vocab.Size():
			return nil, api.Refusef("token %d is not in the vocabulary of %d tokens", t, m.Vocab.Size())
		case m.Vocab.IsControl(runtime.Token(t)):
			text = append(text, m.Vocab.Text(t)...)
		default:
			text = append(text, m.Vocab.Piece(t)...)
		}
	}
	return text, nil
}
