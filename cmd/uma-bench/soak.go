package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/bench/soak"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/models"
	"github.com/uma-serve/uma-serve/models/heldout"
)

// soakFlags are the command's flags.
type soakFlags struct {
	bench.SoakConfig
	days, hours, minutes float64
	virtual              bool
	json                 bool
}

func soakCommand() *cobra.Command {
	fl := soakFlags{SoakConfig: bench.SoakConfig{Log: os.Stderr}}
	cmd := &cobra.Command{
		Use:   "soak [-- uma-serve options…]",
		Short: "mixed load with faults on a front with two models, for hours or for days of virtual time (Linux)",
		Long: fmt.Sprintf(`Plays chats, agents with a tool, storms of prompts, cancels, slow readers, clients that
disconnect and return, switches of models, faults of disk and fabric, and stopped processes (whose
clock then jumps) on a front with two models that it starts, in real time; with --virtual on the
daemon's core in virtual time, where a fake engine computes every batch. --rate is the mean number
of these events per minute; in the warm-up they come %d times as often, to fill the caches.

Each --sample it notes, for each process, resident memory and descriptors; cells in use, snapshot files,
the memory ledger, the queue, and the p99 of TTFT and ITL of the chats since the last sample. In virtual
time it notes the live Go heap instead of resident memory, and what each tier holds.

It exits with status 1 when
  - resident memory or descriptors of a process grow by %g %% an hour or more: the median slope of all
    pairs of samples (Theil and Sen) after a warm-up of a tenth of the time, 10 minutes to a day;
  - a p99 is not flat: its slope adds up to %g %% or more after the warm-up, and samples in random order
    would do so with a chance below %g (Mann and Kendall);
  - a request got no event for --stuck, in virtual time for 10 minutes;
  - an answer differs from the first one to the same request, or in virtual time the logits of a row
    differ from those of its history alone (one row in a hundred is looked at);
  - cells, ledger or tiers do not add up in a sample, a request failed, or a model crashed;
  - requests, cells, descriptors, goroutines or files are left when all clients have gone.

A server that cannot keep up with --rate lets requests wait in its queue: then they count as stuck.
Slopes are judged from half an hour after the warm-up on: a shorter run checks the rest. SIGTERM ends the
run early, with its report. The built-in model at --rate 20 takes a few percent of a core.`,
			soak.WarmUpTimes, soak.GrowthLimit, soak.FlatLimit, soak.FlatChance),
		Example: `  uma-bench soak --hours 24
  uma-bench soak --minutes 5 --rate 120
  uma-bench soak --virtual --days 30
  uma-bench soak --hours 2 -m a.gguf --other b.gguf -- --think-evict offload`,
		RunE: func(_ *cobra.Command, args []string) error { return fl.run(args) },
	}
	f := cmd.Flags()
	f.Float64Var(&fl.days, "days", 0, "how long, in days; --days, --hours and --minutes add up")
	f.Float64Var(&fl.hours, "hours", 0, "how long, in hours (default 1 when none is given)")
	f.Float64Var(&fl.minutes, "minutes", 0, "how long, in minutes")
	f.BoolVar(&fl.virtual, "virtual", false, "in virtual time, on the core without processes")
	f.Float64Var(&fl.PerMinute, "rate", 20, "events a minute, on average")
	f.DurationVar(&fl.Sample, "sample", time.Minute, "time between two samples")
	f.DurationVar(&fl.Stuck, "stuck", 2*time.Minute, "a request without an event for this long is stuck")
	f.DurationVar(&fl.Fault, "fault", 10*time.Second, "mean length of a fault, of a pause of a slow reader")
	f.Uint64Var(&fl.Seed, "seed", 1, "seed of the events")
	f.StringVarP(&fl.Model, "model", "m", "", "GGUF `file` of the model that stays loaded (default: the built-in one)")
	f.StringVar(&fl.Other, "other", "", "GGUF `file` of the model that is loaded and unloaded (default: the "+
		"built-in one)")
	f.BoolVar(&fl.json, "json", false, "print JSON")
	return cmd
}

func (fl *soakFlags) run(args []string) error {
	length := fl.days*24 + fl.hours + fl.minutes/60
	if length == 0 {
		length = 1
	}
	switch {
	case !(length > 0 && length <= 10*366*24):
		return usageError{fmt.Errorf("--days, --hours and --minutes add up to %g hours; it must be more than 0 and at "+
			"most 10 years", length)}
	case !(fl.PerMinute > 0 && fl.PerMinute <= 6000):
		return usageError{fmt.Errorf("--rate is %g; it must be more than 0 and at most 6000 events a minute",
			fl.PerMinute)}
	case fl.Sample < 100*time.Millisecond || fl.Stuck < time.Second || fl.Fault < 10*time.Millisecond ||
		fl.Fault > fl.Stuck/2:
		return usageError{fmt.Errorf("--sample is %v, --stuck %v and --fault %v; they must be at least 100ms, 1s and "+
			"10ms, and --fault at most half of --stuck", fl.Sample, fl.Stuck, fl.Fault)}
	case fl.virtual && len(args) > 0:
		return usageError{fmt.Errorf("--virtual starts no daemon: it takes no options for one, and got %q", args)}
	case fl.virtual && fl.Sample < time.Second:
		return usageError{fmt.Errorf("--sample is %v; in virtual time it must be at least 1s", fl.Sample)}
	}
	fl.Length = time.Duration(math.Round(length * float64(time.Hour)))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var res *soak.Result
	var err error
	if fl.virtual {
		res, err = soak.Virtual(ctx, soak.VirtualConfig{Length: fl.Length, Sample: fl.Sample, PerMinute: fl.PerMinute,
			Seed: fl.Seed, Log: os.Stderr})
	} else {
		res, err = fl.real(ctx, args)
	}
	if err != nil {
		return err
	}
	if fl.json {
		err = res.WriteJSON(os.Stdout)
	} else {
		err = res.Write(os.Stdout)
	}
	if !res.Passed() {
		err = errors.Join(err, errors.New("the soak test has failed"))
	}
	return err
}

// real runs it on daemon processes.
func (fl *soakFlags) real(ctx context.Context, args []string) (*soak.Result, error) {
	for _, file := range []*string{&fl.Model, &fl.Other} {
		if *file == "" {
			var err error
			if *file, err = models.Default(); err != nil {
				return nil, err
			}
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for _, p := range heldout.Problems() {
		fl.Questions = append(fl.Questions, p.Question)
	}
	fl.Args = args
	fl.Start = func(args ...string) (*daemonproc.Proc, error) {
		return daemonproc.Start(filepath.Join(filepath.Dir(self), "uma-serve"), time.Minute, nil, args...)
	}
	return bench.RunSoak(ctx, fl.SoakConfig)
}
