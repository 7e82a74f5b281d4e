// Command uma-serve loads GGUF models and serves them to its user's programs over a Unix socket.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/documents"
	"github.com/uma-serve/uma-serve/daemon/front"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/daemon/toolbox"
	"github.com/uma-serve/uma-serve/internal/cli"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/meridian/fabric/nixl/agent"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/runtime/llama"
)

const long = `uma-serve loads GGUF models through llama.cpp and serves them to your programs over a
Unix socket: framed JSON (docs/protocol.md), lines of text, and over HTTP the APIs of OpenAI,
Anthropic, Gemini, llama-server and ollama (docs/http.md). With --socket-mode programs of other
users may connect.
--listen serves HTTP on a TCP address as well (docs/clients.md).

  uma-serve                                   serve the built-in demonstration model
  uma-serve -m model.gguf -c 16384            serve a model with a KV cache of 16,384 tokens
  uma-serve -m qwen3:8b                       serve a model by its name (uma-cli models lists the names)
  uma-serve -hf org/repo:Q4_K_M               serve a Hugging Face model; download it if it is not on disk
  uma-serve -m model.gguf --config uma.toml   read options from a file
  uma-serve -m model.gguf --listen 8737       also serve HTTP on 127.0.0.1:8737
  uma-cli                                     chat with the model
  curl --unix-socket $XDG_RUNTIME_DIR/uma-serve/uma.sock http://uma/metrics

Every option is also an environment variable (--ctx-size is UMA_CTX_SIZE) and a key of the
configuration file (ctx-size). Command-line options override the environment, the environment
overrides the file, and the file overrides the defaults. Without --config the file is
$XDG_CONFIG_HOME/uma-serve/uma-serve.toml, else /etc/uma-serve/uma-serve.toml. --print-config
shows the value of every option and where it was set. A table [models.NAME] of the file gives a
model a name, aliases and options for it alone. Each loaded model runs in a separate engine process;
the process that you start is the front (docs/models.md).

--version names the llama.cpp that is linked. make ENGINE=/path/to/llama.cpp links another one;
CMAKE_ARGS adds CUDA or Vulkan (docs/engines.md).`

func main() {
	if len(os.Args) > 1 && os.Args[1] == link.EngineArg {
		os.Exit(runEngine())
	}
	if len(os.Args) > 1 && os.Args[1] == link.DevicesArg {
		slog.SetDefault(slog.New(slog.DiscardHandler)) // the report has what the engine says
		if err := json.NewEncoder(os.Stdout).Encode(llama.Backends()); err != nil {
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == download.Arg {
		os.Exit(runDownload())
	}
	if len(os.Args) > 1 && os.Args[1] == documents.Arg {
		if err := documents.Run(os.Stdin, os.Stdout, slices.Contains(os.Args[2:], documents.Confined)); err != nil {
			fmt.Fprintln(os.Stderr, "uma-serve:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == toolbox.BridgeArg {
		os.Exit(runBridge())
	}
	if len(os.Args) > 1 && os.Args[1] == agent.Arg {
		os.Exit(runNIXL(os.Args[2:]))
	}
	root := newRoot()
	root.SetArgs(config.NormalizeArgs(os.Args[1:]))
	if err := root.Execute(); err != nil {
		text, status := "uma-serve: "+strings.ReplaceAll(clierr.Text(err), "\n", "\numa-serve: ")+"\n", 1
		if _, ok := err.(usageError); ok {
			text, status = text+"uma-serve --help lists the options\n", 2
		}
		written := make(chan struct{})
		go func() { io.WriteString(os.Stderr, text); close(written) }()
		select {
		case <-written:
		case <-time.After(lastWords): // stderr is a pipe that is full
		}
		os.Exit(status)
	}
}

func newRoot() *cobra.Command {
	flags, cfg, sections := config.NewFlagSet()
	var print bool
	root := &cobra.Command{
		Use:     "uma-serve",
		Short:   "serve GGUF models over a Unix socket, and over TCP if asked",
		Long:    long,
		Version: buildinfo.Version + ", " + buildinfo.Engine,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unexpected argument %q; options begin with --, and -m FILE.gguf or -m "+
					"NAME names a model", args[0])}
			}
			return nil
		},
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.Load(os.Environ()); err != nil {
				return usageError{err}
			}
			if print {
				for _, w := range cfg.Warnings {
					fmt.Fprintln(os.Stderr, "uma-serve: warning:", w)
				}
				return cfg.WriteTOML(cmd.OutOrStdout(), sections)
			}
			// A reader of stderr that goes away costs log lines, not the daemon: without this the Go runtime ends the
			// process when a write to stderr fails with EPIPE.
			signal.Ignore(syscall.SIGPIPE)
			lines, log := cfg.Logger(os.Stderr)
			defer lines.Close(lastWords)
			slog.SetDefault(log) // logging by a library must not block either
			for _, w := range cfg.Warnings {
				log.Warn(w)
			}
			if cfg.ConfigFile != "" {
				log.Info("configuration file", "path", cfg.ConfigFile)
			}
			llama.SetLogger(log)
			cfg.Puller = downloads{log, cfg.MMProj == config.NoProjector}
			ctx, cancel := context.WithCancel(cmd.Context())
			wait, err := startNIXL(ctx, cfg, log)
			if err != nil {
				cancel()
				return err
			}
			defer wait()
			defer cancel()
			if cfg.Front() {
				return front.Run(cmd.Context(), cfg, log)
			}
			if cfg.GPULayers != 0 {
				cfg.Backends = llama.Backends()
			}
			return daemon.Run(cmd.Context(), cfg, log, llama.Open)
		},
	}
	root.Flags().SortFlags = false
	root.Flags().AddFlagSet(flags)
	other := pflag.NewFlagSet("Other", pflag.ContinueOnError)
	other.SortFlags = false
	other.BoolVar(&print, "print-config", false, "print the value of every option and where it was set, as a "+
		"configuration file")
	other.BoolP("help", "h", false, "print this help")
	other.Bool("version", false, "print the versions of this program and of its engine")
	root.Flags().AddFlagSet(other)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if gone := config.Gone(err); gone != nil {
			return usageError{gone}
		}
		return usageError{clierr.Flag(root.Flags(), err)}
	})
	root.SetHelpCommand(&cobra.Command{Use: "help", Hidden: true,
		RunE: func(*cobra.Command, []string) error { return root.Help() }})
	usage := func(err error) error { return usageError{err} }
	root.AddCommand(cli.CompletionCommand("uma-serve", usage), cli.ManPagesCommand("uma-serve", usage),
		newMCP())
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStdout()
		if cmd != root {
			fmt.Fprintf(w, "Usage:\n  %s\n\nExamples:\n%s\n", cmd.UseLine(), cmd.Example)
			return nil
		}
		fmt.Fprint(w, "Usage:\n  uma-serve [options]\n  uma-serve mcp [options]\n"+
			"  uma-serve completion bash|zsh|fish\n")
		for _, s := range append(sections, config.Section{Title: "Other", Flags: other}) {
			fmt.Fprintf(w, "\n%s:\n%s", s.Title, s.Flags.FlagUsagesWrapped(100))
		}
		return nil
	})
	for option, words := range config.Choices {
		cli.CompleteWords(root, option, words)
	}
	root.MarkFlagFilename("config", "toml")
	root.RegisterFlagCompletionFunc("model", completeModel(cfg))
	root.RegisterFlagCompletionFunc("hf-repo", cobra.NoFileCompletions)
	root.MarkFlagDirname("cache-dir")
	root.MarkFlagDirname("slot-save-path")
	root.MarkFlagDirname("models-dir")
	for _, option := range []string{"listen", "listen-group", "allowed-host", "cors-origin"} {
		root.RegisterFlagCompletionFunc(option, cobra.NoFileCompletions)
	}
	return root
}

// completeModel completes --model to the names of models, and to GGUF files where no name begins so.
func completeModel(cfg *config.Config) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) (names []string, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
		defer cancel()
		catalog, err := store.New(cmp.Or(cfg.ModelsDir, os.Getenv("UMA_MODELS_DIR")), nil).Scan(ctx)
		if err == nil {
			for _, name := range catalog.Names() {
				if strings.HasPrefix(name, typed) {
					names = append(names, name)
				}
			}
		}
		if len(names) == 0 {
			return []string{"gguf"}, cobra.ShellCompDirectiveFilterFileExt
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// runEngine runs an engine process of a front.
func runEngine() (status int) {
	signal.Ignore(syscall.SIGPIPE)
	err := daemon.RunEngine(context.Background(), os.Stderr, llama.Open, llama.SetLogger)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "uma-serve: engine process:", err)
	return 1
}

// runDownload runs the process of a download, which a front starts.
func runDownload() (status int) {
	signal.Ignore(syscall.SIGPIPE)
	if err := download.Run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "uma-serve: download:", err)
		return 1
	}
	return 0
}

// lastWords is the longest time for which the ending process waits until its last log lines are written to stderr.
const lastWords = time.Second

// usageError is a mistake on the command line, in the environment or in the config file: exit status 2.
type usageError struct{ error }
