package prepare

import (
	"cmp"
	"log/slog"
	"strings"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime"
)

// Describe returns the model's part of info.
func (m *Model) Describe() *reports.InfoModel {
	in := &reports.InfoModel{ModelInfo: m.Info, Adapters: m.Adapters.Info(),
		ChatTemplate: m.template != nil, TemplateSource: m.source,
		Thinks:       m.Tags.Known(),
		ThinkMarkers: m.Tags.Family(), ThinkSwitch: []string{}, ThinkPast: []string{}}
	if m.template != nil {
		in.ThinkSwitch = append(in.ThinkSwitch, m.thinking.Names()...)
		in.ThinkPast = append(in.ThinkPast, m.thinking.PastNames()...)
	}
	if m.noChat != nil {
		in.NoChat = m.noChat.Error()
	}
	if e := m.Embedder; e.refusal != "" {
		in.NoEmbeddings = e.refusal
	} else {
		in.Embeddings = &reports.InfoEmbeddings{Values: e.width, Pooling: e.pooling, Longest: e.longest, Sizes: e.sizes,
			AnySize: e.any, Assumed: e.assumed}
	}
	in.Images = m.Images()
	if m.Embedder.rank != nil {
		in.Ranking = &reports.InfoRanking{Longest: m.Embedder.longest}
	}
	return in
}

// Log logs the pooling of embeddings, the chat template, the markers of thinking and the syntax of tool calls.
func (m *Model) Log(log *slog.Logger) {
	if e := m.Embedder; e.refusal == "" {
		log.Info("embeddings", "values", e.width, "pooling", string(e.pooling), "assumed", e.assumed, "longest_text",
			e.longest)
	}
	if m.Info.Encoder {
		return
	}
	if m.noChat != nil {
		log.Warn("no chat: "+m.noChat.Error(), "name", m.Info.Name)
		return
	}
	attrs := []any{"template", m.source, "think_markers", cmp.Or(m.Tags.Family(), "none")}
	if names := m.thinking.Names(); len(names) > 0 {
		attrs = append(attrs, "think_switch", strings.Join(names, " "))
	}
	if names := m.thinking.PastNames(); len(names) > 0 {
		attrs = append(attrs, "think_past", strings.Join(names, " "))
	}
	calls := m.template.Tools()
	attrs = append(attrs, "tool_calls", calls.Syntax.Name+" ("+calls.Found+")")
	log.Info("chat", attrs...)
	if calls.Found == "unread" {
		log.Warn("the template renders tool calls in a form that is not known: the model's calls may stay text")
	}
}

// NoSpeculation returns the reason why no tokens are guessed for any request, "" if they are.
func (m *Model) NoSpeculation() string {
	if m.Info.Encoder {
		return "the model generates no text"
	}
	return m.cfg.NoDrafts()
}

// Template returns the text of the chat template, "" if it does not compile.
func (m *Model) Template() string {
	if m.template == nil {
		return ""
	}
	return m.templateText
}

// Infill returns the markers before prefix, suffix and middle, nil if the model fills in no middle.
func (m *Model) Infill() []runtime.Token { return m.infillers }

// Specials returns the texts of the BOS and EOS tokens, "" for a token that the vocabulary lacks.
func (m *Model) Specials() (bos, eos string) {
	if t := m.Vocab.BOS(); t != runtime.NoToken {
		bos = m.Vocab.Text(t)
	}
	if t := m.Vocab.EOS(); t != runtime.NoToken {
		eos = m.Vocab.Text(t)
	}
	return bos, eos
}

// AddsBOS reports whether the tokenizer puts a BOS before a text.
func (m *Model) AddsBOS() bool {
	tokens, err := m.Vocab.Tokenize(nil, "", true, false)
	return err == nil && len(tokens) > 0 && tokens[0] == m.Vocab.BOS()
}
