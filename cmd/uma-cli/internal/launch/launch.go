// Package launch knows how other programs are made to use a daemon: for each program the environment variables,
// arguments and files. Environment variables and arguments come first, then files of this launch alone; a program that
// reads neither gets a member of its settings file, which is taken out again when it ends.
package launch

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Target is the daemon that a program is to use, and its model.
type Target struct {
	URL     string // http://127.0.0.1:PORT
	Key     string // of the port, or a word where none is needed
	Model   string // a name that the daemon knows
	Context int    // tokens
	Thinks  bool   // the model can think

	Home   string // of the user
	Config string // of the user's settings: $XDG_CONFIG_HOME, or .config below Home
	Dir    string // for files of this launch
}

// answer returns the maximum number of tokens of an answer, where a program wants to know one: programs keep as many
// free in the context.
func (t *Target) answer() int { return min(max(t.Context/4, 1024), 16384) }

// prompt returns the maximum number of tokens of a prompt, which leaves room for an answer.
func (t *Target) prompt() int { return max(t.Context-t.answer(), t.Context/2) }

// Plan is the command, variables and files of a program.
type Plan struct {
	Command []string // the program and its first arguments; those of the user follow
	Env     []string // NAME=VALUE
	Unset   []string // variables that the program must not have
	Own     []File   // files below Target.Dir
	Merge   []File   // the text is a JSON object, whose members are set in the file for the time of the launch
}

// File is a file with its text.
type File struct {
	Path string
	Text string
}

// Program is one that can be launched.
type Program struct {
	Name    string
	Binary  string
	Install string // how to install it
	plan    func(*Target) Plan
	bare    []string // the arguments where the user gives none
}

// Plan returns how the program is started with arguments of the user.
func (p *Program) Plan(t *Target, args []string) Plan {
	plan := p.plan(t)
	if len(args) == 0 {
		args = p.bare
	}
	plan.Command = slices.Concat(plan.Command, args)
	return plan
}

// Find returns the program with this name.
func Find(name string) (*Program, bool) {
	i := slices.IndexFunc(Programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return nil, false
	}
	return &Programs[i], true
}

// Names returns the names of all programs.
func Names() (list []string) {
	for i := range Programs {
		list = append(list, Programs[i].Name)
	}
	return list
}

// String returns the plan for a reader: as lines of a shell, with the files before them.
func (p *Plan) String() string {
	var b strings.Builder
	for _, f := range p.Own {
		fmt.Fprintf(&b, "# %s (a file of this launch)\n%s\n\n", f.Path, strings.TrimRight(f.Text, "\n"))
	}
	for _, f := range p.Merge {
		fmt.Fprintf(&b, "# %s (set while the program runs, then as before)\n%s\n\n", f.Path,
			strings.TrimRight(f.Text, "\n"))
	}
	for _, name := range p.Unset {
		fmt.Fprintf(&b, "unset %s\n", name)
	}
	for _, v := range p.Env {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(value))
	}
	words := make([]string, len(p.Command))
	for i, w := range p.Command {
		words[i] = quote(w)
	}
	b.WriteString(strings.Join(words, " ") + "\n")
	return b.String()
}

// quote returns a word for a shell.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./:=,@+", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// object is a JSON object in literals of this package.
type object = map[string]any

// text returns v as indented JSON.
func text(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic("launch: " + err.Error()) // literals of texts and numbers
	}
	return b.String()
}

// line returns v as JSON on one line.
func line(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("launch: " + err.Error()) // literals of texts and numbers
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// own returns a file of the launch.
func (t *Target) own(name, text string) File { return File{filepath.Join(t.Dir, name), text} }
