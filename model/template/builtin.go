package template

import (
	"embed"
	"path"
	"slices"
	"strings"
)

// The built-in templates: formats of model families, for files without a template or with a wrong one.
//
//go:embed builtin/*.jinja
var builtin embed.FS

// DefaultBuiltin is the template of a model that has none and whose vocabulary is not recognised.
const DefaultBuiltin = "chatml"

// MaxTemplateBytes bounds a template read from a file.
const MaxTemplateBytes = 1 << 20

// BuiltinNames returns the names of the built-in templates, sorted.
func BuiltinNames() []string {
	entries, err := builtin.ReadDir("builtin")
	if err != nil {
		panic("template: " + err.Error()) // embedded
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".jinja")
	}
	slices.Sort(names)
	return names
}

// Builtin returns the built-in template of that name.
func Builtin(name string) (text string, ok bool) {
	b, err := builtin.ReadFile(path.Join("builtin", path.Base(name)+".jinja"))
	return string(b), err == nil && path.Base(name) == name
}

// ForVocab names the built-in template of a model without one, by the markers that its vocabulary has. has reports
// whether a text is a token.
func ForVocab(has func(text string) bool) string {
	for _, f := range []struct {
		name   string
		tokens []string
	}{
		{"chatml", []string{"<|im_start|>", "<|im_end|>"}},
		{"llama3", []string{"<|start_header_id|>", "<|eot_id|>"}},
		{"gemma", []string{"<start_of_turn>", "<end_of_turn>"}},
		{"deepseek", []string{"<｜User｜>", "<｜Assistant｜>"}},
		{"command-r", []string{"<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"}},
		{"granite", []string{"<|start_of_role|>", "<|end_of_role|>"}},
		{"phi3", []string{"<|user|>", "<|assistant|>", "<|end|>"}},
		{"zephyr", []string{"<|user|>", "<|assistant|>"}},
		{"mistral", []string{"[INST]", "[/INST]"}},
	} {
		if !slices.ContainsFunc(f.tokens, func(s string) bool { return !has(s) }) {
			return f.name
		}
	}
	return DefaultBuiltin
}
