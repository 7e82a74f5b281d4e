package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/models/store"
)

func newCopy() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cp NAME COPY",
		Aliases: []string{"copy"},
		Short:   "Make a copy of a model under another name",
		Long: `Make COPY a model like NAME, as ollama cp does. The copy shares the files of NAME and takes no space; it
is listed by uma-cli models, and uma-cli rm deletes it. A copy of a model that was made with a system message, a
template or parameters (POST /api/create) has those, too. NAME cannot be deleted as long as there is a copy.

uma-cli alias gives a model a further name without a place in the lists.`,
		Example: `  uma-cli cp qwen3:8b assistant
  uma-cli cp hf.co/org/repo:Q4_K_M team/assistant:v1`,
	}
	open := modelsDir(cmd)
	names := completeNames(open)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(cmd, nil, typed)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return usagef("name a model and its copy: uma-cli cp NAME COPY")
		}
		s := open()
		c, m, err := find(cmd, s, args[0])
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(args[1], ":"+store.Latest)
		if err := store.CheckRecipeName(name); err != nil {
			return usageError{err}
		}
		if of, err := c.Lookup(name); err == nil {
			return usagef("there is a model %s already (%s); choose another name, or uma-cli rm %s deletes it", of.ID(),
				of.Place, name)
		}
		recipe := store.Recipe{From: m.ID()}
		if m.Recipe != nil {
			recipe = *m.Recipe
		}
		recipe.Name, recipe.Created = name, time.Now().UTC()
		if err := s.SetRecipe(recipe); errors.Is(err, store.ErrName) {
			return usageError{err}
		} else if err != nil {
			return err
		}
		return ui.Open(os.Stdout).Print(fmt.Sprintf("%s is a copy of %s\n", clean(name), clean(m.ID())))
	}
	return cmd
}
