package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

func equalCommand() *cobra.Command {
	cfg := bench.EqualConfig{Log: os.Stderr, Client: clientProcess}
	var model string
	var policies []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "equal [-- OPTIONS OF THE DAEMONS]",
		Short: "equal clients at the same moment: the second policy's times relative to the first's",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(policies) != 2 {
				return usageError{fmt.Errorf("--policies names %d policies; it must name two", len(policies))}
			}
			model, err := benchModel(model)
			if err != nil {
				return err
			}
			options := func(policy string) []string {
				return append([]string{"--parallel", strconv.Itoa(max(cfg.Clients, 16)), "--ctx-size", "16384",
					"--no-prefix-cache", "--policy", policy}, args...)
			}
			return withDaemon(model, options(policies[0]), func(a *daemonproc.Proc) error {
				return withDaemon(model, options(policies[1]), func(b *daemonproc.Proc) error {
					cfg.Names, cfg.Sockets = [2]string(policies), [2]string{a.Socket, b.Socket}
					rows, err := bench.RunEqual(cfg)
					if err != nil {
						return err
					}
					if asJSON {
						return json.NewEncoder(os.Stdout).Encode(rows)
					}
					fmt.Println("| policy | all done ms | ratio | last first token ms | ratio | ITL p95 ms |")
					fmt.Println("|---|---|---|---|---|---|")
					for _, r := range rows {
						done, first := "–", "–"
						if r.DoneRatio > 0 {
							done, first = fmt.Sprintf("**%.3f**", r.DoneRatio), fmt.Sprintf("**%.2f**", r.LastFirstRat)
						}
						fmt.Printf("| %s | %.0f | %s | %.0f | %s | %.1f |\n", r.Name, r.DoneMs, done, r.LastFirstMs,
							first, r.ITLp95Ms)
					}
					return nil
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: a generated one of 135 M parameters, Q8_0)")
	f.StringSliceVar(&policies, "policies", []string{"stock", "meridian"}, "the two policies")
	f.IntVar(&cfg.Clients, "clients", 16, "clients that ask at the same moment")
	f.IntVar(&cfg.Prompt, "prompt", 64, "approximate `tokens` of each prompt")
	f.IntVar(&cfg.Tokens, "tokens", 128, "`tokens` of each answer")
	f.IntVar(&cfg.Rounds, "rounds", 7, "pairs of bursts")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
