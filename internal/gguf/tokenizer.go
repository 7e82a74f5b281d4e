package gguf

import (
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/internal/chattmpl"
)

// roles are the tokenizer.ggml.*_token_id keys worth showing, by the short name of the role.
var roles = []struct{ role, key string }{
	{"bos", "bos_token_id"}, {"eos", "eos_token_id"}, {"eot", "eot_token_id"}, {"eom", "eom_token_id"},
	{"unk", "unknown_token_id"}, {"pad", "padding_token_id"}, {"sep", "seperator_token_id"}, {"mask", "mask_token_id"},
	{"fim_pre", "fim_pre_token_id"}, {"fim_suf", "fim_suf_token_id"}, {"fim_mid", "fim_mid_token_id"},
}

// knownTags are the markers model families put around thinking. The last is Harmony: a channel is opened by a
// control token followed by its name, so the pair counts as single tokens when the control token is one.
var knownTags = []ThinkTags{
	{Open: "<think>", Close: "</think>"},
	{Open: "[THINK]", Close: "[/THINK]"},
	{Open: "<|START_THINKING|>", Close: "<|END_THINKING|>"},
	{Open: "<seed:think>", Close: "</seed:think>"},
	{Open: "<thinking>", Close: "</thinking>"},
	{Open: "<reasoning>", Close: "</reasoning>"},
	{Open: "◁think▷", Close: "◁/think▷"},
	{Open: "<unused94>", Close: "<unused95>"},
	{Open: "<|channel|>analysis", Close: "<|channel|>final"},
}

func (h *header) tokenizer(info *Info) {
	info.Tokenizer = h.text("tokenizer.ggml.model")
	if pre := h.text("tokenizer.ggml.pre"); pre != "" {
		info.Tokenizer += " (" + pre + ")"
	}
	tokens, _ := h.kv["tokenizer.ggml.tokens"].([]string)
	info.VocabSize = len(tokens)
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
	if info.ChatTemplate != "" {
		info.checkTemplate(text(h.int("tokenizer.ggml.bos_token_id")), text(h.int("tokenizer.ggml.eos_token_id")))
	}
	for _, tags := range knownTags {
		openToken, _, harmony := strings.Cut(tags.Open, "analysis")
		closeToken := tags.Close
		if harmony {
			closeToken = openToken
		}
		tags.SingleToken = slices.Contains(tokens, openToken) && slices.Contains(tokens, closeToken)
		tags.InTemplate = strings.Contains(info.ChatTemplate, tags.Close) ||
			harmony && strings.Contains(info.ChatTemplate, openToken)
		// A reserved token alone (Gemma's <unused94>) says nothing; nor does <reasoning> in a vocabulary.
		if tags.InTemplate || tags.SingleToken && !strings.Contains(tags.Open, "unused") {
			info.Think = append(info.Think, tags)
		}
	}
}

func (i *Info) checkTemplate(bos, eos string) {
	t, err := chattmpl.Compile(i.ChatTemplate)
	if err == nil {
		var report chattmpl.Report
		if report, err = t.Check(bos, eos); err == nil {
			i.Template = &report
		}
	}
	if err != nil {
		i.TemplateError = err.Error()
	}
}
