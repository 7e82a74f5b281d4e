package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models/store"
)

// shownModel is the output of `show --json`.
type shownModel struct {
	store.Entry
	store.Details
	License      string `json:"license"`       // of the GGUF file
	ChatTemplate string `json:"chat_template"` // of the GGUF file, in Jinja
	// Warning says which part of Details could not be read.
	Warning string `json:"warning,omitempty"`
}

func newShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show a model's architecture, files, parameters, template and licence",
		Long: `Show a model that uma-cli models lists: its architecture and size, its files, and the parameters, the
chat template and the licence that come with it. NAME may be a unique prefix of a name. uma-cli model inspect FILE.gguf
shows more of the file itself.`,
		Example: `  uma-cli show qwen3:8b
  uma-cli show hf.co/org/repo:Q4_K_M
  uma-cli show --json qwen3:8b | jq -r .chat_template`,
		Args: oneModel,
	}
	open := modelsDir(cmd)
	cmd.ValidArgsFunction = completeNames(open)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print everything as one line of JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, m, err := find(cmd, open(), args[0])
		if err != nil {
			return err
		}
		free := hostmem.Read().Available
		e := c.Entry(m, store.Terms{TypeK: "f16", TypeV: "f16", Free: free})
		if e == nil {
			return fmt.Errorf("%s is not a model: it reads images or sounds for one", m.Path())
		}
		shown := shownModel{Entry: *e}
		if shown.Details, err = m.Details(); err != nil {
			shown.Warning = err.Error()
		}
		if info, err := gguf.Brief(m.Path()); err == nil {
			shown.License, shown.ChatTemplate = info.License, info.ChatTemplate
		}
		out := ui.Open(os.Stdout)
		if asJSON {
			return out.JSON(shown)
		}
		return out.Print(shownText(out, &shown))
	}
	return cmd
}

// find resolves a name that a person typed.
func find(cmd *cobra.Command, s *store.Store, name string) (*store.Catalog, *store.Model, error) {
	c, err := s.Scan(cmd.Context())
	if err != nil {
		return nil, nil, err
	}
	m, err := c.Resolve(name)
	switch {
	case err == nil:
		return c, m, nil
	case errors.Is(err, store.ErrName) && (store.IsPath(name) || strings.HasSuffix(name, ".gguf")):
		return nil, nil, usagef("%w; uma-cli model inspect FILE.gguf shows a file", err)
	case errors.Is(err, store.ErrName):
		return nil, nil, usageError{err}
	case errors.Is(err, store.ErrUnknown):
		return nil, nil, fmt.Errorf("%w; uma-cli models lists what there is", err)
	}
	return nil, nil, err
}

// fewLines is the most lines of a template or a licence that a terminal shows.
const fewLines = 12

func shownText(out *ui.Terminal, m *shownModel) string {
	var t ui.Table
	t.Row("model", "%s", out.Bold(clean(m.Name)))
	t.Row("aliases", "%s", clean(strings.Join(m.Aliases, ", ")))
	t.Row("from", "%s", clean(string(m.From)))
	if m.Problem != "" {
		t.Row("problem", "%s", out.Yellow(clean(m.Problem)))
	}
	t.Row("architecture", "%s", clean(m.Family))
	if m.Parameters > 0 {
		t.Row("parameters", "%s in %s", ui.Large(m.Parameters), clean(m.Quantisation))
	}
	if m.TrainContext > 0 {
		t.Row("context", "trained on %s tokens", ui.Count(m.TrainContext))
	}
	if n := m.Memory; n != nil {
		fits := ""
		switch {
		case m.Fits != nil && *m.Fits:
			fits = ", " + out.Green("fits")
		case m.Fits != nil:
			fits = ", " + out.Red("does not fit into what is available now")
		}
		t.Row("memory", "%s with %s tokens of context%s", ui.Bytes(n.Resident()), ui.Count(m.Context), fits)
	}
	for i, path := range m.Files {
		label := ""
		if i == 0 {
			label = "files"
		}
		t.Row(label, "%s", clean(path))
	}
	t.Row("", "%s", ui.Bytes(uint64(m.Bytes)))
	t.Row("projector", "%s", clean(m.Projector))
	t.Row("licence", "%s", clean(m.License))
	for i, p := range m.Options {
		label := ""
		if i == 0 {
			label = "options"
		}
		t.Row(label, "%s", clean(p))
	}
	var b strings.Builder
	b.WriteString(t.String(out.Dim))
	passage := func(title, text string) {
		if text == "" {
			return
		}
		fmt.Fprintf(&b, "\n%s\n", out.Dim(title))
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		for i, l := range lines {
			if out.IsTTY() && i == fewLines {
				fmt.Fprintf(&b, "%s\n", out.Dim(fmt.Sprintf("… %d more lines: uma-cli show --json", len(lines)-i)))
				break
			}
			b.WriteString(clean(l) + "\n")
		}
	}
	passage("chat template", m.ChatTemplate)
	passage("template of ollama, which uma-serve does not use", m.Template)
	passage("system message", m.System)
	for _, l := range m.Licenses {
		passage("licence", l)
	}
	if m.Warning != "" {
		fmt.Fprintf(&b, "\n%s %s\n", out.Yellow("not read:"), clean(m.Warning))
	}
	return b.String()
}

func newRemove(address *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm NAME",
		Aliases: []string{"remove"},
		Short:   "Delete a model from uma-serve's models directory",
		Long: `Delete a model's files from uma-serve's models directory. NAME is the full name that uma-cli models
lists. A daemon that has the model loaded is asked to unload it first. A model in another program's folder is not
deleted; the error names the command that deletes it. One of which others were made (uma-cli cp) stays until they are
deleted.`,
		Example: "  uma-cli rm hf.co/org/repo:Q4_K_M",
		Args:    oneModel,
	}
	open := modelsDir(cmd)
	cmd.ValidArgsFunction = completeNames(open)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := open()
		c, err := s.Scan(cmd.Context())
		if err != nil {
			return err
		}
		if c.Aliases[args[0]] != "" {
			return usagef("%s is an alias of %s; uma-cli alias --delete %s removes the alias", args[0],
				c.Aliases[args[0]], args[0])
		}
		m, err := c.Lookup(args[0])
		if errors.Is(err, store.ErrName) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		if made := c.MadeOf(m); len(made) > 0 {
			return fmt.Errorf("models were made of %s and have no weights without it (%s); delete those first: "+
				"uma-cli rm %s", m.ID(), strings.Join(made, ", "), made[0])
		}
		if s.MayRemove(m) == nil {
			letGo(cmd.Context(), *address, m.ID())
		}
		if err := s.Remove(m); err != nil {
			return err
		}
		return ui.Open(os.Stdout).Print(fmt.Sprintf("deleted %s, %s\n", clean(m.ID()), ui.Bytes(uint64(m.Bytes))))
	}
	return cmd
}

func newAlias() *cobra.Command {
	var remove string
	cmd := &cobra.Command{
		Use:   "alias [NAME TARGET]",
		Short: "Give a model an alias, or list the aliases",
		Long: `Make NAME an alias of a model, for uma-serve -m, for requests and for uma-cli. TARGET is a name that
uma-cli models lists, or a GGUF file. Without arguments the command lists the aliases, which are stored in aliases.json
in the models directory.`,
		Example: `  uma-cli alias small qwen3:0.6b
  uma-cli alias gpt-4o-mini hf.co/org/repo:Q4_K_M
  uma-cli alias --delete small`,
	}
	open := modelsDir(cmd)
	names := completeNames(open)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return names(cmd, nil, typed)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cmd.Flags().StringVar(&remove, "delete", "", "remove the alias `NAME`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := open()
		out := ui.Open(os.Stdout)
		alias := func(name, target string) error {
			err := s.SetAlias(name, target)
			if errors.Is(err, store.ErrName) {
				return usageError{err}
			}
			return err
		}
		switch {
		case remove != "" && len(args) == 0:
			return alias(remove, "")
		case len(args) == 0:
			c, err := s.Scan(cmd.Context())
			if err != nil {
				return err
			}
			var t ui.Table
			for _, name := range slices.Sorted(maps.Keys(c.Aliases)) {
				t.Row(clean(name), "%s", clean(c.Aliases[name]))
			}
			return out.Print(t.String(nil))
		case len(args) != 2 || remove != "":
			return usagef("give a NAME and its TARGET: uma-cli alias NAME TARGET")
		}
		target := args[1]
		if st, err := os.Stat(target); err == nil && st.Mode().IsRegular() {
			if _, err := gguf.Brief(target); err != nil {
				return err
			}
			if target, err = filepath.Abs(target); err != nil {
				return err
			}
		} else {
			_, m, err := find(cmd, s, target)
			if err != nil {
				return err
			}
			target = m.ID()
		}
		if err := alias(args[0], target); err != nil {
			return err
		}
		return out.Print(fmt.Sprintf("%s is %s\n", clean(args[0]), clean(target)))
	}
	return cmd
}
