package prepare

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/daemon/adapters"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// Model is the loaded model, as far as preparation and answers about it need it. It is immutable and safe from any
// goroutine.
type Model struct {
	Info     runtime.ModelInfo
	Caps     runtime.Capabilities
	Vocab    runtime.Vocab
	Tags     *meridian.Tags // nil: the model does not mark its thinking
	Facts    sampler.VocabFacts
	Calls    *toolcall.Spec // syntax of the model's tool calls; nil without template
	Embedder *Embedder
	Adapters *adapters.Table // nil: none are loaded

	cfg          *config.Config
	viewer       runtime.Viewer     // nil: the model reads no images
	template     *template.Template // nil: it does not compile
	source       string             // origin of template, for logs and info
	templateText string
	thinking     *template.Switch // variables of template that turn thinking on and off; nil without template
	think        *meridian.Config
	noChat       error // the reason for a nil template
	markers      *markers
	spelledEnd   string // ends a turn, and is no token of the vocabulary; "": none
	tokens       *tokenCache
	infillers    []runtime.Token         // markers before prefix, suffix and middle; nil: no fill-in-the-middle
	breaks       func() sampler.Breakers // DRY's default breakers, computed on first use
}

// Longest returns the largest context of one request, in tokens: a prompt with its answer, or a text of an encoder.
func (m *Model) Longest() int {
	if m.Info.Encoder {
		return m.Caps.ContextTokens
	}
	return m.cfg.Longest(m.Caps.ContextTokens)
}

// New finds what eng's model can do, with the options. The error names an option. added are the names of adapters that
// requests have added: of one that cannot be loaded failed hears.
func New(cfg *config.Config, eng runtime.Engine, added []string, failed func(error)) (*Model, error) {
	list, err := cfg.LoRAs()
	if err != nil {
		return nil, err
	}
	v := eng.Vocab()
	m := &Model{Info: eng.Model(), Caps: eng.Capabilities(), Vocab: v, cfg: cfg, think: &cfg.Meridian}
	// llama.cpp writes "llama ?B Q8_0" for a model whose size it does not list.
	m.Info.Description = strings.Replace(m.Info.Description, "?B", strings.ReplaceAll(ui.Large(m.Info.Parameters), " ",
		""), 1)
	if v, ok := eng.(runtime.Viewer); ok && v.Images() != nil {
		m.viewer = v
	}
	m.Facts = sampler.VocabFacts{Size: v.Size(), Piece: func(t int32) []byte { return v.Piece(runtime.Token(t)) }}
	for t := range runtime.Token(v.Size()) {
		if v.IsEOG(t) {
			m.Facts.EOG = append(m.Facts.EOG, t)
		}
	}
	m.tokens = newTokenCache(v, m.Caps.ContextTokens)
	m.infillers = InfillTokens(config.InfillMarksOf(m.Info.Path, v.Size()), func(s string) (runtime.Token, bool) {
		t := v.Find(s)
		return t, t != runtime.NoToken
	})
	m.breaks = sync.OnceValue(func() sampler.Breakers { return m.breakers(wire.DefaultDryBreaks) })
	if m.Adapters, err = adapters.Load(eng, list, added, failed); err != nil {
		return nil, err
	}
	if m.Embedder, err = newEmbedder(cfg, eng); err != nil {
		return nil, err
	}
	if m.Info.Encoder {
		m.noChat = errors.New("the model is an encoder, which generates no text")
		m.markers = newMarkers(v, nil)
		return m, nil
	}
	has := func(s string) bool { return v.Find(s) != runtime.NoToken }
	text, source, err := cfg.TemplateFor(v.ChatTemplate(), has)
	if err != nil {
		return nil, err
	}
	m.source, m.templateText = source, text
	if m.template, m.noChat = cfg.CompileTemplate(text); m.noChat != nil {
		m.noChat = fmt.Errorf(`this model's chat template cannot be run (%w)`, m.noChat)
	} else {
		bos, eos := m.Specials()
		m.thinking = m.template.Switch(bos, eos)
		text = m.template.Texts(bos, eos)
	}
	if m.Tags, err = meridian.Detect(v, cfg.Meridian.Markers, text); err != nil {
		if len(cfg.Meridian.Markers.Open) > 0 {
			return nil, fmt.Errorf("meridian.markers: %w", err)
		}
		m.Tags = nil // the vocabulary cannot write the template's markers: thinking cannot be told from the answer
	} else if m.Tags == nil {
		m.Tags, _ = meridian.Assume(v) // nil where the vocabulary cannot write them
	}
	m.Calls = resolveCalls(m.template, v)
	m.markers = newMarkers(v, m.Tags.Texts())
	m.spelledEnd = m.endOfTurn()
	return m, nil
}

// endMarker is a marker that ends a turn, after white space.
var endMarker = regexp.MustCompile(`^\s*(<[^<>\s]{2,40}>)`)

// endOfTurn returns what the template writes behind an answer, if that is a marker for which the vocabulary has no
// token: the model can only spell it, and continues. A model that was tuned with another's template does so.
func (m *Model) endOfTurn() string {
	if m.template == nil || m.noChat != nil {
		return ""
	}
	said := m.markers.end
	text, _, err := m.renderTurn([]wire.Message{{Role: "user", Content: "hi"}, {Role: "assistant", Content: said}},
		renderInput{}, false)
	if err != nil {
		return ""
	}
	_, behind, _ := strings.Cut(text, said)
	found := endMarker.FindStringSubmatch(behind)
	if found == nil || m.Vocab.Find(found[1]) != runtime.NoToken || slices.Contains(m.Tags.Texts(), found[1]) {
		return ""
	}
	return found[1]
}
