package main

import (
	"os"

	"github.com/spf13/cobra"
)

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that completes commands and flags in your shell",
		Example: `  source <(uma-cli completion bash)                                      # this shell
  uma-cli completion bash >~/.local/share/bash-completion/completions/uma-cli
  uma-cli completion zsh  >"${fpath[1]}/_uma-cli"
  uma-cli completion fish >~/.config/fish/completions/uma-cli.fish`,
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name one shell: bash, zsh or fish")
			}
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(os.Stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(os.Stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(os.Stdout, true)
			}
			return usagef("there is no completion for %q: bash, zsh or fish", args[0])
		},
	}
}
