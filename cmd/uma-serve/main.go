// Command uma-serve loads one GGUF model and serves it to every program on the machine over a Unix socket.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/internal/buildinfo"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

const long = `uma-serve loads one GGUF model through llama.cpp and serves it to every program on this
machine over a Unix socket: framed JSON (docs/protocol.md), lines of text, OpenAI's API over HTTP.

  uma-serve                                   serve the built-in demonstration model
  uma-serve -m model.gguf -c 16384            serve your own, 16,384 tokens of context
  uma-serve -m model.gguf --config uma.toml   options from a file; every option is a key
  uma-cli                                     talk to it
  curl --unix-socket $XDG_RUNTIME_DIR/uma-serve/uma.sock http://uma/metrics

Each option is also an environment variable: --ctx-size is UMA_CTX_SIZE. Precedence: defaults,
--config file, environment, command line.`

func main() {
	flags, cfg, sections := daemon.NewFlagSet()
	root := &cobra.Command{
		Use:     "uma-serve",
		Short:   "serve a GGUF model over a Unix socket",
		Long:    long,
		Version: buildinfo.Version + ", " + buildinfo.Engine(),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("what is %q? Options begin with --; a model file is given with -m FILE.gguf", args[0])}
			}
			return nil
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := daemon.Load(flags, cfg, os.Environ()); err != nil {
				return usageError{err}
			}
			log := cfg.Logger(os.Stderr)
			llama.SetLogger(log)
			return daemon.Run(cmd.Context(), cfg, log, llama.Open)
		},
	}
	root.Flags().SortFlags = false
	root.Flags().AddFlagSet(flags)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{daemon.FlagError(flags, err)} })
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
		for _, s := range sections {
			fmt.Fprintf(w, "\n%s:\n%s", s.Title, s.Flags.FlagUsagesWrapped(100))
		}
		return nil
	})
	root.SetArgs(daemon.NormalizeArgs(os.Args[1:]))
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "uma-serve:", strings.ReplaceAll(err.Error(), "\n", "\numa-serve: "))
		if _, ok := err.(usageError); ok {
			fmt.Fprintln(os.Stderr, "uma-serve --help lists the options")
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// usageError is a mistake on the command line, in the environment or in the config file: exit status 2.
type usageError struct{ error }
