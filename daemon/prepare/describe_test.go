package prepare

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestLogNamesTheTemplate: the log says which template is used, and how the model thinks.
func TestLogNamesTheTemplate(t *testing.T) {
	var out bytes.Buffer
	modelOf(t, fake.Config{NoTemplate: true}).Log(slog.New(slog.NewTextHandler(&out, nil)))
	for _, want := range []string{`template="built-in chatml (the model has none)"`, "think_markers=element"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s lacks %s", out.String(), want)
		}
	}
	if names := template.BuiltinNames(); !slices.Contains(names, "chatml") || !slices.Contains(names, "llama3") ||
		!slices.Contains(names, "mistral") || !slices.Contains(names, "gemma") {
		t.Errorf("%q", names)
	}
}
