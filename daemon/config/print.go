package config

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"
)

// WriteTOML writes every option as a line of a configuration file, by section: options that a layer has set with the
// name of the layer, defaults as comments. Used as --config, the file gives the same configuration, except the password
// of --fabric, which is omitted.
func (c *Config) WriteTOML(w io.Writer, sections []Section) error {
	var b bytes.Buffer
	file := c.ConfigFile
	if file == "" {
		file = "none"
	}
	fmt.Fprintf(&b, "# The options of uma-serve. File: %s. Lines that begin with # show defaults.\n", file)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n# %s\n", s.Title)
		s.Flags.VisitAll(func(f *pflag.Flag) {
			if !isKey(f) {
				return
			}
			c.writeKey(&b, f.Name, tomlValue(f), f.Name)
		})
	}
	fmt.Fprint(&b, "\n[meridian]\n")
	v := reflect.ValueOf(c.Meridian)
	for _, key := range slices.Sorted(maps.Keys(meridianKeys)) {
		if isMeridianKey(key) {
			c.writeKey(&b, key, v.Field(meridianKeys[key]).Interface(), "meridian."+key)
		}
	}
	for i := range c.Models {
		c.Models[i].write(&b, c.layers.options)
	}
	c.writeMCP(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// WriteSample writes a sample configuration file: every option as a comment, with its help and default.
func (c *Config) WriteSample(w io.Writer, sections []Section) error {
	var b bytes.Buffer
	fmt.Fprint(&b, `# uma-serve.toml: the options of uma-serve, each with its default. Remove the # of a line to set it.
#
# uma-serve reads the file that --config names, else $XDG_CONFIG_HOME/uma-serve/uma-serve.toml (by default under
# ~/.config), else /etc/uma-serve/uma-serve.toml. Environment variables (UMA_CTX_SIZE for ctx-size) override the file,
# and command-line options override both. uma-serve --print-config shows the result.
`)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n# ---- %s ----\n", s.Title)
		s.Flags.VisitAll(func(f *pflag.Flag) {
			if !isKey(f) {
				return
			}
			_, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, "\n%s#%s\n", comment(usage), line(f.Name, tomlValue(f)))
		})
	}
	fmt.Fprintf(&b, "\n# ---- Thinking, in detail. These keys must stay below [meridian]. ----\n\n[meridian]\n")
	v := reflect.ValueOf(c.Meridian)
	for _, key := range slices.Sorted(maps.Keys(meridianKeys)) {
		if isMeridianKey(key) {
			fmt.Fprintf(&b, "#%s\n", line(key, v.Field(meridianKeys[key]).Interface()))
		}
	}
	b.WriteString(modelsSample())
	b.WriteString(mcpSample)
	_, err := w.Write(b.Bytes())
	return err
}

// isKey reports whether an option is a key of the file: --config is not, and --meridian is the table [meridian].
func isKey(f *pflag.Flag) bool { return f.Name != "config" && f.Name != "meridian" && !f.Hidden }

func (c *Config) writeKey(b *bytes.Buffer, key string, value any, option string) {
	source := c.layers.source[option]
	if source == "" {
		fmt.Fprintf(b, "#%s\n", line(key, value))
		return
	}
	if source == fromEnvironment && !strings.Contains(option, ".") {
		source += " " + envName(option)
	}
	text := line(key, value)
	if strings.Contains(text, "\n") { // put the comment before a value of several lines
		fmt.Fprintf(b, "# %s:\n%s\n", source, text)
		return
	}
	fmt.Fprintf(b, "%s  # %s\n", text, source)
}

// tomlValue returns an option's value for the TOML encoder.
func tomlValue(f *pflag.Flag) any { return tomlText(f, f.Value.String()) }

// tomlText returns a text of an option for the TOML encoder.
func tomlText(f *pflag.Flag, text string) any {
	switch f.Value.Type() {
	case "int", "int64", "float64", "bool":
		return literal(text)
	case "tokens":
		if text != "auto" {
			return literal(text)
		}
	case "list":
		return slices.DeleteFunc(strings.Split(text, ","), func(v string) bool { return v == "" })
	}
	if f.Name == "fabric" {
		text = password.ReplaceAllString(text, "://")
	}
	return text
}

// password is the user part of a URL.
var password = regexp.MustCompile(`://[^/@]*@`)

// literal is a value that is written to TOML unquoted.
type literal string

func line(key string, value any) string {
	if text, ok := value.(literal); ok {
		return key + " = " + string(text)
	}
	var b bytes.Buffer
	enc := toml.NewEncoder(&b)
	enc.SetTablesInline(true)
	if err := enc.Encode(map[string]any{key: value}); err != nil {
		panic("config: an option that TOML cannot hold: " + err.Error())
	}
	return strings.TrimSpace(b.String())
}

// comment wraps text into comment lines.
func comment(text string) string {
	var b strings.Builder
	at := 0
	for _, word := range strings.Fields(text) {
		switch n := len([]rune(word)); {
		case at == 0:
			b.WriteString("#")
			at = 1 + 1 + n
		case at+1+n > 118:
			b.WriteString("\n#")
			at = 1 + 1 + n
		default:
			at += 1 + n
		}
		b.WriteString(" " + word)
	}
	return b.String() + "\n"
}
