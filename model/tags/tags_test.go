package tags

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestFamilies: the table is whole, and no family hides another.
func TestFamilies(t *testing.T) {
	for _, f := range append(slices.Clone(Families), Plain) {
		if f.Name == "" || len(f.Open) == 0 || len(f.Close) == 0 || len(f.Signs) == 0 {
			t.Errorf("%+v lacks something", f)
		}
		for _, text := range slices.Concat(f.Open, f.Close, f.Hidden) {
			if text == "" || len(text) > 128 {
				t.Errorf("%s: marker %q", f.Name, text)
			}
		}
		for _, signs := range f.Signs {
			if got, ok := InTemplate(strings.Join(signs, " ")); !ok || got.Name != f.Name || got.Open[0] != f.Open[0] {
				t.Errorf("%s: its own signs name %q", f.Name, got.Name)
			}
		}
		if len(f.Vocab) > 0 {
			if got, ok := InVocab(func(s string) bool { return slices.Contains(f.Vocab, s) }); !ok ||
				got.Name != f.Name {
				t.Errorf("%s: its own tokens name %q", f.Name, got.Name)
			}
		}
	}
}

// TestDocumented: docs/templates.md lists every family, with its markers.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(slices.Clone(Families), Plain) {
		_, row, found := strings.Cut(string(doc), "\n| "+f.Name+" |")
		row, _, _ = strings.Cut(row, "\n")
		row = strings.ReplaceAll(row, `\|`, "|")
		if !found || f.Channels == nil &&
			(!strings.Contains(row, "`"+f.Open[0]+"`") || !strings.Contains(row, "`"+f.Close[0]+"`")) {
			t.Errorf("%s: %q", f.Name, row)
		}
	}
}

func TestInTemplateElements(t *testing.T) {
	for text, open := range map[string]string{
		"'<think>' '</think>'":                  "<think>",
		"content.split('</think>')[-1]":         "<think>",
		"<mm:think></mm:think>":                 "<mm:think>",
		"<think:opensource></think:opensource>": "<think:opensource>",
		"<seed:think></seed:think> </think>":    "<seed:think>", // the one with a name space is the model's own
		"</thinking> and </think>":              "<think>",
		"<thought></thought>":                   "<thought>",
		"</reasoning>":                          "<reasoning>",
		"you may <think>":                       "",
		"'</think{}>'.format(x)":                "",
		"</tool_response></thinker></b think>":  "",
		"</" + strings.Repeat("a", 100):         "",
		"":                                      "",
	} {
		f, ok := InTemplate(text)
		if ok != (open != "") || ok && f.Open[0] != open {
			t.Errorf("%q: %v %+v, want %q", text, ok, f.Open, open)
		}
	}
}
