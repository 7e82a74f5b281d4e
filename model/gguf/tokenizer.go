package gguf

import (
	"slices"

	"github.com/uma-serve/uma-serve/model/tags"
	"github.com/uma-serve/uma-serve/model/template"
)

// roles are the tokenizer.ggml.*_token_id keys to show, by the short name of the role.
var roles = []struct{ role, key string }{
	{"bos", "bos_token_id"}, {"eos", "eos_token_id"}, {"eot", "eot_token_id"}, {"eom", "eom_token_id"},
	{"unk", "unknown_token_id"}, {"pad", "padding_token_id"}, {"sep", "seperator_token_id"}, {"mask", "mask_token_id"},
	{"fim_pre", "fim_pre_token_id"}, {"fim_suf", "fim_suf_token_id"}, {"fim_mid", "fim_mid_token_id"},
}

func (h *header) tokenizer(info *Info) {
	info.Tokenizer = h.text("tokenizer.ggml.model")
	if pre := h.text("tokenizer.ggml.pre"); pre != "" {
		info.Tokenizer += " (" + pre + ")"
	}
	tokens, _ := h.kv["tokenizer.ggml.tokens"].([]string)
	info.tokens = tokens
	info.VocabSize = int(h.arrays["tokenizer.ggml.tokens"].n)
	text := func(id int64) string {
		if id >= 0 && id < int64(len(tokens)) {
			return tokens[id]
		}
		return ""
	}
	for _, r := range roles {
		if id, ok := h.kv["tokenizer.ggml."+r.key].(int64); ok {
			info.Special = append(info.Special, SpecialToken{Role: r.role, ID: id, Text: text(id)})
		}
	}
	info.ChatTemplate = h.text("tokenizer.chat_template")
	if h.brief {
		return
	}
	if info.ChatTemplate != "" {
		info.checkTemplate(text(h.int("tokenizer.ggml.bos_token_id")), text(h.int("tokenizer.ggml.eos_token_id")))
	}
	has := func(s string) bool { return slices.Contains(tokens, s) }
	if info.ChatTemplate == "" && len(tokens) > 0 {
		info.DefaultTemplate = template.ForVocab(has)
	}
	f, inTemplate := tags.InTemplate(info.templateTexts)
	if !inTemplate {
		var ok bool
		if f, ok = tags.InVocab(has); !ok {
			return
		}
	}
	info.Think = []ThinkTags{{Open: f.Open[0], Close: f.Close[0], SingleToken: has(f.Open[0]) && has(f.Close[0]),
		InTemplate: inTemplate}}
}

// Token returns the number of a token of the vocabulary, -1 when it has none of this text, or was not read (Brief).
func (i *Info) Token(text string) int { return slices.Index(i.tokens, text) }

func (i *Info) checkTemplate(bos, eos string) {
	i.templateTexts = i.ChatTemplate
	t, err := template.Compile(i.ChatTemplate)
	if err == nil {
		i.templateTexts = t.Texts(bos, eos)
		var report template.Report
		if report, err = t.Check(bos, eos); err == nil {
			i.Template = &report
		}
	}
	if err != nil {
		i.TemplateError = err.Error()
	}
}
