package config

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/uma-serve/uma-serve/model/template"
)

// TemplateFor returns the chat template of a model and its origin: its recipe's, --chat-template, own, which is that of
// the model's file, or the built-in template that fits the vocabulary. has reports whether a token is in it.
func (c *Config) TemplateFor(own string, has func(token string) bool) (text, source string, err error) {
	if c.Recipe != nil && c.Recipe.Template != "" {
		return c.Recipe.Template, "that of " + c.Recipe.Name, nil
	}
	if name := c.ChatTemplate; name != "" {
		text, isBuiltin, err := loadTemplate(name)
		if err != nil {
			return "", "", fmt.Errorf("--chat-template is %q; %w", name, err)
		}
		if isBuiltin {
			return text, "built-in " + name + " (--chat-template)", nil
		}
		if text == name {
			return text, "the text of --chat-template", nil
		}
		return text, name + " (--chat-template)", nil
	}
	if own != "" {
		return own, "the model's own", nil
	}
	name := template.ForVocab(has)
	text, _ = template.Builtin(name)
	return text, "built-in " + name + " (the model has none)", nil
}

// CompileTemplate compiles a text of TemplateFor. Only one that --chat-template names may leave out what the user says.
func (c *Config) CompileTemplate(text string) (*template.Template, error) {
	if c.ChatTemplate != "" && (c.Recipe == nil || c.Recipe.Template == "") {
		return template.CompileChosen(text)
	}
	return template.Compile(text)
}

// extension is a file name's extension.
var extension = regexp.MustCompile(`\.\w+$`)

// loadTemplate returns the template that --chat-template names: a built-in one, a text, else a file.
func loadTemplate(name string) (text string, isBuiltin bool, err error) {
	if text, ok := template.Builtin(name); ok {
		return text, true, nil
	}
	// llama-server takes a template's text here. A text without expressions is the same for every conversation.
	if strings.Contains(name, "{{") || strings.Contains(name, "{%") ||
		strings.ContainsAny(name, " \n") && !strings.ContainsRune(name, '/') && !extension.MatchString(name) {
		return name, false, nil
	}
	must := "a template file or one of " + strings.Join(template.BuiltinNames(), ", ")
	st, err := os.Stat(name) // opening a FIFO would block
	if err != nil {
		return "", false, fmt.Errorf("it must be %s: %w", must, err)
	}
	if !st.Mode().IsRegular() {
		return "", false, fmt.Errorf("it must be %s: the file's mode is %s", must, st.Mode())
	}
	f, err := os.Open(name)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, template.MaxTemplateBytes+1))
	if err != nil {
		return "", false, err
	}
	if len(b) > template.MaxTemplateBytes {
		return "", false, fmt.Errorf("the file is longer than %d bytes", template.MaxTemplateBytes)
	}
	return string(b), false, nil
}
