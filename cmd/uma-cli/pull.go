package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
	"github.com/uma-serve/uma-serve/models/download"
	"github.com/uma-serve/uma-serve/models/pull"
	"github.com/uma-serve/uma-serve/models/store"
)

func newPull() *cobra.Command {
	var open func() *store.Store
	var hosts []string
	var offline, textAlone bool
	connections := pull.DefaultConnections
	cmd := &cobra.Command{
		Use:   "pull NAME",
		Short: "Download a model",
		Long: `Download a model from a GGUF repository of Hugging Face, from ollama's registry or from another OCI
registry.

  hf.co/OWNER/REPOSITORY              a quantisation that fits in memory, preferably Q4_K_M
  hf.co/OWNER/REPOSITORY:Q8_0         this quantisation
  hf.co/OWNER/REPOSITORY@REVISION     at a branch, tag or commit
  hf.co/OWNER/REPOSITORY/FILE.gguf    this file; any part of a split model stands for all
  https://huggingface.co/…            the address of a repository's or a file's page
  qwen3:8b, OWNER/NAME:TAG            ollama's registry
  HOST/OWNER/NAME:TAG                 another OCI registry

The projector (mmproj) of a model that reads images or sounds is pulled too, and stored beside it.

Files are downloaded over parallel connections and verified by SHA-256 on the way. To resume an interrupted pull, run
the same command again. A second pull of the same file waits for the first and shows its progress. A file gets its final
name when it is complete; the command then prints its path on standard output.

Environment: HF_TOKEN (or the token file of Hugging Face's tools) for gated and private repositories; HF_ENDPOINT for a
mirror; HTTPS_PROXY; UMA_OFFLINE or HF_HUB_OFFLINE refuses every pull.`,
		Example: `  uma-cli pull qwen3:8b
  uma-cli pull hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF
  uma-cli pull hf.co/unsloth/Qwen3-8B-GGUF:Q6_K
  uma-serve -m "$(uma-cli pull qwen3:0.6b)"`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name one model: uma-cli pull NAME; uma-cli pull --help shows what a name is")
			}
			cfg, err := pull.FromEnv(os.Getenv)
			if err != nil {
				return err
			}
			cfg.Offline = cfg.Offline || offline
			cfg.Connections, cfg.AllowHosts, cfg.TextAlone = connections, hosts, textAlone
			cfg.Agent = "uma-serve/" + buildinfo.Version
			if cfg.Memory = hostmem.Read().Available; cfg.Memory == 0 {
				cfg.Memory = hostmem.Read().Total
			}
			return pullModel(cmd.Context(), cfg, args[0], open().Dir())
		},
	}
	open = modelsDir(cmd)
	cmd.Flags().BoolVar(&offline, "offline", false, "refuse to use the network")
	cmd.Flags().BoolVar(&textAlone, "no-mmproj", false,
		"leave out the projector, with which the model reads images or sounds")
	cmd.Flags().IntVar(&connections, "connections", connections, fmt.Sprintf("parallel connections, 1 to %d",
		pull.MaxConnections))
	cmd.Flags().StringSliceVar(&hosts, "allow-host", nil,
		"also follow redirects of downloads to `HOST` and its subdomains; repeatable")
	return cmd
}

// pullModel pulls a model with its progress on standard error, and prints the path of its first file.
func pullModel(ctx context.Context, cfg pull.Config, name, dir string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once

	out := ui.Open(os.Stderr)
	view := newPullView(out, os.Stderr)
	cfg.Observer = view.observer()
	p, err := pull.New(cfg)
	if err != nil {
		return usageError{err}
	}
	if _, perr := pull.Parse(name); perr == nil && !cfg.Offline { // else the pull says what is wrong
		// What strangers' servers send is read with few rights; what the kernel lacks of that is left out.
		if _, err := download.Confine(name, dir); err != nil {
			return err
		}
	}
	m, err := p.Pull(ctx, name, dir)
	view.end()
	switch {
	case errors.Is(err, pull.ErrInterrupted):
		out.Println(ui.Sanitize(err.Error()))
		return exitStatus(exitInterrupted)
	case errors.Is(err, pull.ErrName):
		return usageError{err}
	case err != nil:
		return err
	}
	if out.IsTTY() {
		out.Println(out.Green("pulled ") + ui.Sanitize(m.Name) + out.Dim("; serve it with uma-serve -m "+m.Files[0]))
	}
	_, err = fmt.Println(m.Files[0])
	return err
}
