package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/daemonproc"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

func kvCommand() *cobra.Command {
	cfg := bench.KVConfig{Log: os.Stderr}
	var model string
	var only []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "test the KV cache: sharing, restores, oversubscription, ITL, kill -9",
		Long: `Each row starts new daemons and is compared with a baseline of the same run: a lone cold request, a
computed prompt, a pool with room for all requests, a chat alone. The exit status is 1 when a row
misses its limit.

  uma-bench kv --only sharing,restore`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, row := range only {
				if !slices.Contains(bench.KVRows, row) {
					return fmt.Errorf("--only: %q is not one of %s", row, strings.Join(bench.KVRows, ", "))
				}
			}
			model, err := benchModel(model)
			if err != nil {
				return err
			}
			tiny, err := cachedModel("uma-bench-tiny-v1.gguf", ggufgen.Tiny())
			if err != nil {
				return err
			}
			cfg.Start, cfg.StartTiny = starter(model), starter(tiny)
			var rows []bench.KVRow
			var failed error
			for _, row := range bench.KVRows {
				if len(only) > 0 && !slices.Contains(only, row) {
					continue
				}
				got, err := bench.RunKV(&cfg, row)
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", row, err))
				}
				rows = append(rows, got...)
			}
			if asJSON {
				failed = errors.Join(failed, json.NewEncoder(os.Stdout).Encode(rows))
			} else {
				printKV(rows)
			}
			for _, r := range rows {
				if !r.Met {
					failed = errors.Join(failed, fmt.Errorf("%s, %s: limit missed", r.Row, r.What))
				}
			}
			return failed
		},
	}
	f := cmd.Flags()
	f.StringVarP(&model, "model", "m", "", "GGUF `file` (default: a generated one of 135 M parameters, Q8_0)")
	f.StringSliceVar(&only, "only", nil, "`rows` to measure: "+strings.Join(bench.KVRows, ", ")+" (default: all)")
	f.IntVar(&cfg.Kills, "kills", 200, "number of times the daemon is killed while it writes")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// starter starts the uma-serve beside this binary on a model.
func starter(model string) func(args ...string) (*daemonproc.Proc, error) {
	return func(args ...string) (*daemonproc.Proc, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return daemonproc.Start(filepath.Join(filepath.Dir(self), "uma-serve"), time.Minute, nil,
			append([]string{"-m", model}, args...)...)
	}
}

func printKV(rows []bench.KVRow) {
	fmt.Println("| row | what | measured | against | ratio or value | required | |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, r := range rows {
		met := "yes"
		if !r.Met {
			met = "**no**"
		}
		fmt.Printf("| %s | %s | %s | %s | %.3f | %s | %s |\n", r.Row, r.What, r.Measured, r.Against, r.Value,
			r.Required, met)
	}
}
