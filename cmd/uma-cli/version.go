package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

// buildFacts is the output of `version --json`.
type buildFacts struct {
	Version  string       `json:"version"`
	Commit   string       `json:"commit,omitempty"`
	Modified bool         `json:"modified,omitempty"` // built from a tree with changes that are not committed
	Go       string       `json:"go"`
	Platform string       `json:"platform"`
	Daemon   *daemonFacts `json:"daemon"` // null when none answers
}

type daemonFacts struct {
	Version string `json:"version"`
	Engine  string `json:"engine"`
	Go      string `json:"go"`
}

func newVersion(dial dialer) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program, and of the daemon and its engine if one answers",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showVersion(cmd.Context(), dial, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON")
	return cmd
}

func showVersion(ctx context.Context, dial dialer, asJSON bool) error {
	v := buildFacts{Version: buildinfo.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	asked, cancel := withTimeout(ctx, askTimeout)
	defer cancel()
	if c, err := dial(asked); err == nil {
		defer c.Close()
		if info, err := c.Info(asked); err == nil {
			v.Daemon = &daemonFacts{Version: info.Version, Engine: info.Engine, Go: info.Go}
		}
	}
	out := ui.Open(os.Stdout)
	if asJSON {
		return out.JSON(v)
	}
	return out.Print(versionTable(v).String(out.Dim))
}

func versionTable(v buildFacts) *ui.Table {
	var t ui.Table
	t.Row("uma-cli", "%s", v.Version)
	if v.Commit != "" {
		commit := v.Commit[:min(len(v.Commit), 12)]
		if v.Modified {
			commit += " with changes"
		}
		t.Row("commit", "%s", commit)
	}
	t.Row("built with", "%s for %s", v.Go, v.Platform)
	if d := v.Daemon; d != nil {
		t.Row("daemon", "%s, %s", clean(d.Version), clean(d.Go))
		t.Row("engine", "%s", clean(d.Engine))
	} else {
		t.Row("daemon", "none answers")
	}
	return &t
}
