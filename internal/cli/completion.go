// Package cli has the commands that every program of this module has: completion scripts for shells, and manual pages
// for packages.
package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Shells are those that there are scripts for.
var Shells = []string{"bash", "zsh", "fish"}

// CompletionCommand is `PROGRAM completion SHELL`. usage marks an error as a mistake on the command line.
func CompletionCommand(program string, usage func(error) error) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell completion script",
		Example: strings.ReplaceAll(
			`  source <(PROGRAM completion bash)                                      # this shell
  PROGRAM completion bash >~/.local/share/bash-completion/completions/PROGRAM
  PROGRAM completion zsh  >"${fpath[1]}/_PROGRAM"
  PROGRAM completion fish >~/.config/fish/completions/PROGRAM.fish`, "PROGRAM", program),
		ValidArgs: Shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("name one shell: bash, zsh or fish"))
			}
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return usage(fmt.Errorf("no completion for %q; name bash, zsh or fish", args[0]))
		},
	}
}

// CompleteWords makes the value of a flag of cmd complete to words.
func CompleteWords(cmd *cobra.Command, flag string, words []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic("completion: " + err.Error())
	}
}
