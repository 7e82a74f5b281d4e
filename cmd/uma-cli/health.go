package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

func newHealth(dial dialer) *cobra.Command {
	var asJSON, live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check the daemon's health; report it as exit status",
		Long: `Check the daemon's health, for containers and service managers.

Exit status: 0 ready · 1 loading, draining, down, stalled · 3 no daemon. With --live, all but stalled give 0.`,
		Example: `  uma-cli health && echo ready
  HEALTHCHECK CMD uma-cli health --live --timeout 2s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return usagef("--timeout is %v; it must be more than 0", timeout)
			}
			ctx, cancel := withTimeout(cmd.Context(), timeout)
			defer cancel()
			c, err := dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			raw, err := c.Ask(ctx, wireclient.Question{Kind: wire.KindHealth})
			if err != nil {
				return err
			}
			h := new(reports.Health)
			if err := raw.Decode(h); err != nil {
				return fmt.Errorf("health: %w", err)
			}
			out := ui.Open(os.Stdout)
			if asJSON {
				err = out.Println(string(raw))
			} else {
				err = out.Println(healthLine(out, h))
			}
			if err != nil {
				return err
			}
			if h.Status == "ok" || live && h.Status != "stalled" {
				return nil
			}
			return exitStatus(exitError)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer as one line of JSON")
	cmd.Flags().BoolVar(&live, "live", false, "exit with 0 for a daemon that answers and is not stalled")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "fail when the daemon does not answer within this time")
	return cmd
}

func healthLine(out *ui.Terminal, h *reports.Health) string {
	status := out.Green(h.Status)
	switch h.Status {
	case "ok":
	case "loading":
		status = out.Yellow(fmt.Sprintf("loading %.0f %%", 100*h.Progress))
	case "stalled":
		status = out.Red("stalled")
		if h.StalledSince != "" {
			status = out.Red(fmt.Sprintf("stalled for %s, since %s", ui.Duration(ms(h.StalledMs)),
				ui.Sanitize(h.StalledSince)))
		}
	case "down":
		status = out.Red("down")
	default:
		status = out.Yellow(ui.Sanitize(h.Status))
	}
	line := fmt.Sprintf("%s · up %s · %d requests", status, ui.Duration(ms(h.UptimeMs)), h.Requests)
	if h.LastStepAgeMs != nil {
		line += " · last step " + ui.Duration(ms(*h.LastStepAgeMs)) + " ago"
	}
	if a := h.Arbiter; a != nil && a.Status != "ok" {
		line += " · " + out.Yellow("arbiter "+ui.Sanitize(a.Status)+": "+ui.Sanitize(a.Text))
	}
	for _, url := range h.Listen {
		if !strings.HasPrefix(url, "unix:") {
			line += " · " + ui.Sanitize(url)
		}
	}
	return line
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
