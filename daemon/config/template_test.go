package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/template"
)

// TestLoadTemplate: a file, a name, and what is neither.
func TestLoadTemplate(t *testing.T) {
	dir := t.TempDir()
	file, huge := filepath.Join(dir, "t.jinja"), filepath.Join(dir, "huge")
	if err := errors.Join(os.WriteFile(file, []byte("{{ messages }}"), 0o600),
		os.WriteFile(huge, make([]byte, template.MaxTemplateBytes+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	if text, isBuiltin, err := loadTemplate(file); text != "{{ messages }}" || isBuiltin || err != nil {
		t.Errorf("%q %v %v", text, isBuiltin, err)
	}
	const inline = "{% for m in messages %}{{ m.content }}{% endfor %}"
	if text, isBuiltin, err := loadTemplate(inline); text != inline || isBuiltin || err != nil {
		t.Errorf("%q %v %v", text, isBuiltin, err)
	}
	if _, isBuiltin, err := loadTemplate("gemma"); !isBuiltin || err != nil {
		t.Error(isBuiltin, err)
	}
	for name, want := range map[string]string{huge: "longer than 1048576 bytes",
		dir: "it must be a template file or one of", "gemna": "chatml, command-r",
		"my template.jinja": "no such file", "my/folder of templates": "no such file"} {
		if _, _, err := loadTemplate(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestChatTemplateOption: what is neither a file nor a name is refused, and any layer sets the option.
func TestChatTemplateOption(t *testing.T) {
	for arg, want := range map[string]string{"nosuch": "it must be a template file or one of chatml,",
		t.TempDir(): "it must be a template file", "": ""} {
		_, err := load(t, []string{"--chat-template", arg}, nil)
		if want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), `--chat-template is "`+arg+`"; `+want)) {
			t.Errorf("%q: %v, want %q", arg, err, want)
		}
	}
	if c, err := load(t, nil, []string{"UMA_CHAT_TEMPLATE=phi3"}); err != nil || c.ChatTemplate != "phi3" {
		t.Errorf("%q %v", c.ChatTemplate, err)
	}
	c, err := load(t, []string{"--chat-template", "Say something nice."}, nil)
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "leaves out what the user says") {
		t.Errorf("a text: %v, %v", c, err)
	}
	file := write(t, `chat_template = "llama3"`)
	if c, err := load(t, []string{"--config", file}, nil); err != nil || c.ChatTemplate != "llama3" {
		t.Errorf("%q %v", c.ChatTemplate, err)
	}
}
