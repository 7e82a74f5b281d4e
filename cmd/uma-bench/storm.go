package main

import (
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench/workload"
)

// stormCommand is run --workload storm with its own table.
func stormCommand() *cobra.Command {
	o := runOptions{mode: "real", workload: "storm", target: "uma", baseline: "none", warmUp: 3, timeout: time.Hour,
		options: workload.DefaultOptions()}
	var outDir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "storm [-- uma-serve options…]",
		Short: "ITL of chats while other clients submit long prompts, by policy",
		Long: `Two chats decode while clients submit unique long prompts back to back. Each side starts a daemon
with POLICY, or POLICY@TARGET with an ITL target in ms:

  uma-bench storm --sides stock,uma,meridian@50,meridian@100

Prompt speed is relative to the first side. This is uma-bench run --workload storm with one repeat
and only this table.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			d, err := o.document(ctx, given(cmd.Flags()), args)
			if err != nil {
				return err
			}
			if outDir != "" {
				if err := save(d, outDir); err != nil {
					return err
				}
			}
			if !asJSON {
				_, err = fmt.Print(d.StormTable())
				return err
			}
			b, err := d.StormJSON()
			if err == nil {
				_, err = fmt.Println(string(b))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.modelFile, "model", "m", "", "GGUF `file` (default: a generated one of 135 M parameters, Q8_0)")
	f.StringSliceVar(&o.sides, "sides", []string{"stock", "uma", "meridian@50", "meridian@100"},
		"`POLICY[@TARGET]` of each side")
	f.IntVar(&o.options.Streams, "chats", o.options.Streams, "chat streams")
	f.IntVar(&o.options.Clients, "clients", o.options.Clients, "clients that submit prompts")
	f.IntVar(&o.options.Prompt, "prompt", o.options.Prompt, "approximate `tokens` of each prompt")
	f.DurationVar(&o.options.Solo, "solo", o.options.Solo, "time that the chats run alone")
	f.DurationVar(&o.options.Storm, "storm", o.options.Storm, "time that the storm lasts")
	f.BoolVar(&o.options.Background, "background", false, "send the clients' prompts as background requests")
	f.IntVar(&o.repeats, "repeats", 1, "number of runs of each side")
	f.StringVar(&outDir, "out-dir", "", "also write the reports to this `directory`")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print progress")
	return cmd
}
