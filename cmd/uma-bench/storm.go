package main

import (
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench/load"
)

// stormCommand is run --workload storm with its own table.
func stormCommand() *cobra.Command {
	o := runOptions{mode: "real", workload: "storm", target: "uma", baseline: "none", warmUp: 3, timeout: time.Hour, load: load.DefaultOptions()}
	var outDir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "storm [-- uma-serve options…]",
		Short: "chats that decode while others submit long prompts back to back, policy by policy",
		Long: `Two chats decode; then clients submit unique long prompts, each the next when the last was
answered. Each side is a daemon of its own, POLICY or POLICY@TARGET with an inter-token target in ms:

  uma-bench storm --sides stock,uma,meridian@50,meridian@100

The first side is what the prompts' speed of the others is held against. The same as uma-bench run
--workload storm, which writes its page by default, with one repeat and this table alone.`,
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
	f.StringSliceVar(&o.sides, "sides", []string{"stock", "uma", "meridian@50", "meridian@100"}, "`POLICY[@TARGET]` of each side")
	f.IntVar(&o.load.Streams, "chats", o.load.Streams, "streams that decode all the time")
	f.IntVar(&o.load.Clients, "clients", o.load.Clients, "clients that submit prompts")
	f.IntVar(&o.load.Prompt, "prompt", o.load.Prompt, "`tokens` of each prompt, about")
	f.DurationVar(&o.load.Solo, "solo", o.load.Solo, "how long the chats are measured alone")
	f.DurationVar(&o.load.Storm, "storm", o.load.Storm, "how long the storm lasts")
	f.BoolVar(&o.load.Background, "background", false, "mark the clients' prompts as background work")
	f.IntVar(&o.repeats, "repeats", 1, "so often")
	f.StringVar(&outDir, "out-dir", "", "also write the page and the reports there")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	return cmd
}
