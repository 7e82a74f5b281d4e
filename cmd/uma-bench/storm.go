package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/daemonproc"
)

// stormRow is one configuration's result.
type stormRow struct {
	Policy   string  `json:"policy"`
	TargetMs float64 `json:"itl_target_ms"` // 0 = none
	bench.Storm
}

func stormCommand() *cobra.Command {
	cfg := bench.StormConfig{Log: os.Stderr}
	var model string
	var sides []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "storm",
		Short: "chats that decode while others submit long prompts back to back, policy by policy",
		Long: `Two chats decode; then clients submit unique long prompts, each the next when the last was
answered. Each side is a daemon of its own, POLICY or POLICY@TARGET with an inter-token target in ms:

  uma-bench storm --sides stock,uma,meridian@50,meridian@100

The first side is what the prompts' speed of the others is held against.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if model == "" {
				var err error
				if model, err = benchModel(); err != nil {
					return err
				}
			}
			var rows []stormRow
			for _, side := range sides {
				row := stormRow{Policy: side}
				args := []string{"--ctx-size", "16384", "--parallel", "8"}
				if policy, target, ok := strings.Cut(side, "@"); ok {
					ms, err := strconv.ParseFloat(target, 64)
					if err != nil {
						return fmt.Errorf("--sides: %q: the target is not a number of ms", side)
					}
					row.Policy, row.TargetMs = policy, ms
					args = append(args, "--itl-target-ms", target)
				}
				args = append(args, "--policy", row.Policy)
				fmt.Fprintln(os.Stderr, side)
				err := withDaemon(model, args, func(p *daemonproc.Proc) (err error) {
					row.Storm, err = bench.RunStorm(p, cfg)
					return err
				})
				if err != nil {
					return fmt.Errorf("%s: %w", side, err)
				}
				rows = append(rows, row)
			}
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(rows)
			}
			printStorm(rows)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: a generated one of 135 M parameters, Q8_0)")
	f.StringSliceVar(&sides, "sides", []string{"stock", "uma", "meridian@50", "meridian@100"}, "`POLICY[@TARGET]` of each side")
	f.IntVar(&cfg.Chats, "chats", 2, "streams that decode all the time")
	f.IntVar(&cfg.Clients, "clients", 4, "clients that submit prompts")
	f.IntVar(&cfg.Prompt, "prompt", 1500, "`tokens` of each prompt, about")
	f.DurationVar(&cfg.Solo, "solo", 10*time.Second, "how long the chats are measured alone")
	f.DurationVar(&cfg.Storm, "storm", 40*time.Second, "how long the storm lasts")
	f.BoolVar(&cfg.Background, "background", false, "mark the clients' prompts as background work")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printStorm(rows []stormRow) {
	fmt.Println("| policy | target ms | alone p50 / p95 / worst ms | storm p50 / p95 / p99 / worst ms | prompt tok/s | of the first | 5th token, alone → storm ms |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, r := range rows {
		target := "–"
		if r.TargetMs > 0 {
			target = strconv.FormatFloat(r.TargetMs, 'f', -1, 64)
		}
		fmt.Printf("| %s | %s | %.1f / %.1f / %.1f | %.1f / %.1f / %.1f / %.1f | %.0f | %.2f | %.0f → %.0f (%.2f×) |\n", r.Policy, target,
			r.Solo.P50, r.Solo.P95, r.Solo.Worst, r.Under.P50, r.Under.P95, r.Under.P99, r.Under.Worst,
			r.PromptTokensSec, r.PromptTokensSec/max(rows[0].PromptTokensSec, 1e-9), r.SoloFifthMs, r.FifthMs, r.FifthMs/max(r.SoloFifthMs, 1e-9))
	}
}
