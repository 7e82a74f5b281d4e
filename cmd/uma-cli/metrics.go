package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/metricsview"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
)

// minInterval keeps a watch from being a load.
const minInterval = 100 * time.Millisecond

func newMetrics(dial dialer, address *string) *cobra.Command {
	var asJSON, prometheus, watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Show the daemon's activity and speed",
		Long: `Show the daemon's activity and speed. docs/metrics.md explains every metric.

--watch adds rates and redraws the screen in place until Ctrl-C; rows that do not fit the window are left out. Without
--watch every row is printed.`,
		Example: `  uma-cli metrics --watch
  uma-cli metrics --json | jq .ttft_ms
  uma-cli metrics --watch --interval 10s --json >>metrics.jsonl
  uma-cli metrics --prometheus | grep uma_kv`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case prometheus && (asJSON || watch):
				return usagef("--prometheus excludes --json and --watch")
			case cmd.Flags().Changed("interval") && !watch:
				return usagef("--interval needs --watch")
			case interval < minInterval:
				return usagef("--interval is %v; it must be %v or more", interval, minInterval)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			out := ui.Open(os.Stdout)
			if prometheus {
				return printPrometheus(ctx, *address, out)
			}
			c, err := dial(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			show := showText(out, watch)
			if asJSON {
				show = func(raw []byte) error { return out.Println(string(raw)) }
			}
			if !watch {
				return showMetrics(ctx, c, show)
			}
			return watchMetrics(ctx, c, out, interval, asJSON, show)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "redraw every --interval, with rates")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "refresh interval of --watch")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the snapshot as one line of JSON")
	cmd.Flags().BoolVar(&prometheus, "prometheus", false, "print Prometheus's text format (GET /metrics on the socket)")
	cmd.Flags().SortFlags = false
	return cmd
}

// watchMetrics shows metrics until ctx ends: every interval, and at once when the window has another size or the
// program continues after Ctrl-Z.
func watchMetrics(
	ctx context.Context, c *wireclient.Client, out *ui.Terminal, interval time.Duration, asJSON bool,
	show func([]byte) error,
) error {
	changed := make(chan os.Signal, 1)
	if !asJSON && out.IsTTY() {
		notify(changed, windowSignals)
		defer signal.Stop(changed)
	}
	for tick := time.NewTicker(interval); ; {
		if err := showMetrics(ctx, c, show); err != nil && ctx.Err() == nil {
			out.FreshLine()
			return err
		}
		select {
		case <-ctx.Done():
			return out.FreshLine()
		case <-tick.C:
		case s := <-changed:
			if resumed(s) {
				out.NewScreen() // the shell has written to the window
			}
		}
	}
}

func showMetrics(ctx context.Context, c *wireclient.Client, show func([]byte) error) error {
	ctx, cancel := withTimeout(ctx, adminTimeout)
	defer cancel()
	raw, err := c.Metrics(ctx)
	if err != nil {
		return err
	}
	return show(raw)
}

// showText draws snapshots as a screen, over the one before it in a watch.
func showText(out *ui.Terminal, watch bool) func([]byte) error {
	view := metricsview.View{Out: out, Fit: watch}
	return func(raw []byte) error {
		s, err := metricsview.Parse(raw, time.Now())
		if err != nil {
			return err
		}
		if watch {
			return out.Redraw(view.Render(s))
		}
		return out.Print(view.Render(s))
	}
}

func printPrometheus(ctx context.Context, address string, out *ui.Terminal) error {
	path, err := socketPath(address)
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, adminTimeout)
	defer cancel()
	text, err := client.Prometheus(ctx, path)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return out.Print(string(text))
}

// notify has signals sent to c; none means none, where signal.Notify means all.
func notify(c chan<- os.Signal, signals []os.Signal) {
	if len(signals) > 0 {
		signal.Notify(c, signals...)
	}
}
