package template

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// outputTemplates are the chat templates of testdata/outputs.
func outputTemplates(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open("testdata/outputs/templates.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		src, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(src)
	}
}

// The syntaxes of templates that docs/tools.md does not list.
func TestFormsOfOutputs(t *testing.T) {
	all := outputTemplates(t)
	for name, want := range map[string]string{
		"MiniMax-M3": "minimax-m3", "GigaChat3-10B-A1.8B": "gigachat-3", "Kimi-K2-Thinking": "kimi-k2",
		"meetkai-functionary-medium-v3.1": "functionary-3.1", "unsloth-Apriel-1.5": "hunyuan",
		"Apriel-1.6-15b-Thinker-fixed": "hunyuan", "CohereForAI-c4ai-command-r-plus-tool_use": "command-r-plus",
	} {
		tmpl, err := Compile(all[name+".jinja"])
		if err != nil {
			t.Fatal(name, err)
		}
		if got := tmpl.Tools(); got.Syntax.Name != want || !got.Offered {
			t.Errorf("%s: %s (%s), want %s", name, got.Syntax.Name, got.Found, want)
		}
	}
}
