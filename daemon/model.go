package daemon

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/constrain"
	"github.com/uma-serve/uma-serve/grammar"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sampler"
)

// model holds what intake and the HTTP handlers need of the loaded model. It is immutable and safe from any goroutine.
type model struct {
	info         runtime.ModelInfo
	caps         runtime.Capabilities
	vocab        runtime.Vocab
	tags         *meridian.Tags // nil: the model does not mark its thinking
	facts        sampler.VocabFacts
	template     *template.Template // nil: it does not compile
	source       string             // origin of template, for logs and info
	templateText string
	thinking     *template.Switch // variables of template that turn thinking on and off; nil without template
	calls        *toolcall.Spec   // syntax of the model's tool calls; nil without template
	think        *meridian.Config
	noChat       error // the reason for a nil template
	markers      *markers
	spelledEnd   string // ends a turn, and is no token of the vocabulary; "": none
	tokens       *tokenCache
	embed        *embedder
	infillers    []runtime.Token            // markers before prefix, suffix and middle; nil: no fill-in-the-middle
	breaks       func() sampler.Breakers    // DRY's default breakers, computed on first use
	grammar      func() *grammar.Vocabulary // the vocabulary of grammars, computed on first use
	file         func() api.File            // facts about the model's file, read on first use
}

func newModel(cfg *config.Config, eng runtime.Engine) (*model, error) {
	v := eng.Vocab()
	m := &model{info: eng.Model(), caps: eng.Capabilities(), vocab: v, think: &cfg.Meridian}
	// llama.cpp writes "llama ?B Q8_0" for a model whose size it does not list.
	m.info.Description = strings.Replace(m.info.Description, "?B", strings.ReplaceAll(ui.Large(m.info.Parameters), " ",
		""), 1)
	m.facts = sampler.VocabFacts{Size: v.Size(), Piece: func(t int32) []byte { return v.Piece(runtime.Token(t)) }}
	for t := range runtime.Token(v.Size()) {
		if v.IsEOG(t) {
			m.facts.EOG = append(m.facts.EOG, t)
		}
	}
	m.tokens = newTokenCache(v, m.caps.ContextTokens)
	m.infillers = infillMarks(func(s string) (runtime.Token, bool) {
		t := v.Find(s)
		return t, t != runtime.NoToken
	})
	m.file = sync.OnceValue(func() api.File {
		h, err := store.ReadHeader(m.info.Path)
		if err != nil {
			return api.File{} // it was replaced, or is no file: what was loaded is told
		}
		return fileOf(&h)
	})
	m.breaks = sync.OnceValue(func() sampler.Breakers { return m.breakers(wire.DefaultDryBreaks) })
	m.grammar = sync.OnceValue(func() *grammar.Vocabulary {
		return constrain.Vocabulary(v, m.tags.Texts(), m.calls, m.tags.Headers(), m.facts.EOG)
	})
	var err error
	if m.embed, err = newEmbedder(cfg, eng); err != nil {
		return nil, err
	}
	if m.info.Encoder {
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
	if m.template, m.noChat = template.Compile(text); m.noChat != nil {
		m.noChat = fmt.Errorf(`this model's chat template cannot be run (%w)`, m.noChat)
	} else {
		bos, eos := m.specials()
		m.thinking = m.template.Switch(bos, eos)
		text = m.template.Texts(bos, eos)
	}
	if m.tags, err = meridian.Detect(v, cfg.Meridian.Markers, text); err != nil {
		if len(cfg.Meridian.Markers.Open) > 0 {
			return nil, fmt.Errorf("meridian.markers: %w", err)
		}
		m.tags = nil // the vocabulary cannot write the template's markers: thinking cannot be told from the answer
	} else if m.tags == nil {
		m.tags, _ = meridian.Assume(v) // nil where the vocabulary cannot write them
	}
	m.calls = resolveCalls(m.template, v)
	m.markers = newMarkers(v, m.tags.Texts())
	m.spelledEnd = m.endOfTurn()
	return m, nil
}

// endMarker is a marker that ends a turn, after white space.
var endMarker = regexp.MustCompile(`^\s*(<[^<>\s]{2,40}>)`)

// endOfTurn returns what the template writes behind an answer, if that is a marker for which the vocabulary has no
// token: the model can only spell it, and goes on. A model that was tuned with another's template does so.
func (m *model) endOfTurn() string {
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
	if found == nil || m.vocab.Find(found[1]) != runtime.NoToken || slices.Contains(m.tags.Texts(), found[1]) {
		return ""
	}
	return found[1]
}

// specials returns the texts of the BOS and EOS tokens, "" for a token that the vocabulary lacks.
func (m *model) specials() (bos, eos string) {
	if t := m.vocab.BOS(); t != runtime.NoToken {
		bos = m.vocab.Text(t)
	}
	if t := m.vocab.EOS(); t != runtime.NoToken {
		eos = m.vocab.Text(t)
	}
	return bos, eos
}

// addsBOS reports whether the tokenizer puts a BOS before a text.
func (m *model) addsBOS() bool {
	tokens, err := m.vocab.Tokenize(nil, "", true, false)
	return err == nil && len(tokens) > 0 && tokens[0] == m.vocab.BOS()
}
