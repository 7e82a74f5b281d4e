package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/ask"
	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/chat"
	"github.com/uma-serve/uma-serve/internal/cli"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/wireclient"
)

// newRoot is the command tree.
func newRoot() *cobra.Command {
	var address string
	dial := func(ctx context.Context) (*wireclient.Client, error) {
		path, err := socketPath(address)
		if err != nil {
			return nil, err
		}
		return wireclient.Dial(ctx, path)
	}
	settings := chat.DefaultSettings()
	var version bool
	root := &cobra.Command{
		Use:   "uma-cli",
		Short: "Talk to a uma-serve daemon",
		Long: `Talk to a uma-serve daemon over its Unix socket.

Without a command, uma-cli opens a chat on a terminal; when standard input is a pipe, it answers the text on it. In both
cases it takes the flags of chat.`,
		Example: `  uma-cli                                        # chat
  uma-cli --think off                            # chat without thinking
  uma-cli run "Why is the sky blue?"             # one question
  git diff | uma-cli run "Write a commit message"
  uma-cli embed --lines --file notes.txt         # an embedding of each line
  uma-cli open                                   # chat in the browser, with a live view of the server
  uma-cli metrics --watch                        # what the daemon is doing
  uma-cli why --last 3                           # its decisions about the newest three requests
  uma-cli pull qwen3:8b                          # download a model
  uma-cli models                                 # the models on this machine, and which fit
  uma-cli ps                                     # the models that the daemon has loaded
  uma-cli doctor                                 # what is wrong with this machine, and what to do
  uma-cli model inspect model.gguf               # what the file holds, and whether it fits this machine`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return unknownCommand(cmd, args)
			case version:
				return showVersion(cmd.Context(), dial, false)
			case isTerminal(os.Stdin) && isTerminal(os.Stdout):
				return converse(cmd.Context(), dial, &settings)
			case isTerminal(os.Stdin):
				return usagef("nothing to do: give a command, or a prompt on standard input")
			}
			q := question{Options: ask.Options{Settings: settings}}
			return q.ask(cmd.Context(), dial, nil)
		},
		SilenceErrors: true, SilenceUsage: true, DisableAutoGenTag: true,
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
		SuggestionsMinimumDistance: 2,
	}
	root.PersistentFlags().StringVar(&address, "socket", "",
		"Unix socket `PATH` of the daemon (default: $UMA_HOST, $UMA_SOCKET or the daemon's)")
	addSampling(root, &settings)
	addHideThinking(root, &settings)
	root.Flags().BoolVarP(&version, "version", "v", false, "print the versions of this program and of the daemon, if "+
		"one answers")
	root.Flags().SortFlags = false
	root.SetGlobalNormalizationFunc(normalizeFlag)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "Show a command's description, flags and examples",
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, sub := range root.Commands() {
				if sub.IsAvailableCommand() && !strings.HasPrefix(sub.Name(), "__") {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}, RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, args)
			}
			return target.Help()
		}})
	usage := func(err error) error { return usageError{err} }
	root.AddCommand(newChat(dial), newRun(dial), newEmbed(dial), newOpen(dial), newProxy(dial),
		newLaunch(dial, &address),
		newMetrics(dial, &address), newHealth(dial), newInfo(dial), newWhy(dial), newKV(dial), newModel(),
		newModels(&address),
		newShow(), newRemove(&address), newCopy(), newAlias(), newPull(), newLoad(&address), newUnload(&address),
		newPS(&address), newDoctor(dial, &address),
		newUpgrade(), newUninstall(), newPlaceCommand(),
		cli.CompletionCommand("uma-cli", usage), cli.ManPagesCommand("uma-cli", usage), newVersion(dial))
	completeDefaults(root)
	return root
}

// flagAliases are other names that users of llama-server, llama-cli and ollama type.
var flagAliases = map[string]string{
	"uds": "socket", "temperature": "temp", "n-predict": "predict", "max-tokens": "predict",
	"system-prompt": "system", "hidethinking": "hide-thinking",
	"reasoning": "think", "reasoning-effort": "think", "reasoning-budget": "think-budget",
}

func normalizeFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	name = strings.ReplaceAll(name, "_", "-")
	if full, ok := flagAliases[name]; ok {
		name = full
	}
	return pflag.NormalizedName(name)
}

// flagError adds to an unknown flag what may have been meant.
func flagError(cmd *cobra.Command, err error) error {
	plain := clierr.Flag(cmd.Flags(), err)
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		switch unknown.GetSpecifiedName() {
		case "model", "m", "host", "port", "ctx-size", "c", "gpu-layers", "n-gpu-layers", "ngl", "threads", "t",
			"parallel":
			return usagef("%w; model, context and device are options of uma-serve and its [models.NAME] tables", plain)
		}
	}
	return usageError{plain}
}

// unknownCommand is the error for a command that does not exist, with the closest one.
func unknownCommand(cmd *cobra.Command, args []string) error {
	name := args[0]
	hint := ""
	if here, ok := elsewhere[name]; ok {
		return usagef("there is no command %q: %s", name, here)
	}
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %s?", near[0])
	}
	if strings.ContainsRune(name, ' ') || len(args) > 1 {
		hint += fmt.Sprintf("; to send it as a prompt: uma-cli run %q", strings.Join(args, " "))
	}
	return usagef("there is no command %q%s", name, hint)
}

// noArgs is cobra.NoArgs as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// oneModel is cobra.ExactArgs(1) as a usage error.
func oneModel(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("name one model: %s NAME", cmd.CommandPath())
	}
	return nil
}

// socketPath returns the socket of --socket, else of the environment, else the default.
func socketPath(flag string) (string, error) {
	if flag != "" {
		return strings.TrimPrefix(flag, "unix://"), nil
	}
	path, err := wireclient.DefaultSocket()
	if err != nil {
		return "", usageError{err}
	}
	return path, nil
}

func isTerminal(f *os.File) bool { return isatty.IsTerminal(f.Fd()) }

// dialer connects to the daemon the flags and the environment name.
type dialer func(context.Context) (*wireclient.Client, error)
