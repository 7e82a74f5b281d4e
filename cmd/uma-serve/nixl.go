package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/meridian/fabric/nixl"
	"github.com/uma-serve/uma-serve/meridian/fabric/nixl/agent"
)

// runNIXL runs the process beside the daemon that holds NIXL's library.
func runNIXL(args []string) (status int) {
	if len(args) != 1 {
		fmt.Fprintf(os.Stderr, "usage: uma-serve %s URL\n", agent.Arg)
		return 2
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	if err := agent.Main(args[0], os.Stdin, os.Stdout, log); err != nil {
		fmt.Fprintln(os.Stderr, "uma-serve: NIXL agent:", err)
		return 1
	}
	return 0
}

// startNIXL starts an agent if the fabric is NIXL's and names no agent's socket, and sets the option socket. wait
// returns when the agent has ended, after ctx has.
func startNIXL(ctx context.Context, cfg *config.Config, log *slog.Logger) (wait func(), err error) {
	url := nixl.WithSocket(cfg.Fabric, cfg.Socket+".nixl")
	if url == cfg.Fabric {
		return func() {}, nil
	}
	if err := os.MkdirAll(filepath.Dir(cfg.Socket), 0o700); err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stopped, err := agent.Start(ctx, agent.Program{Path: exe, Args: []string{agent.Arg}, URL: url, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--fabric: %w", err)
	}
	cfg.Fabric = url
	return func() { <-stopped }, nil
}
