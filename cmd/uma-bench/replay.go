package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/bench/measure"
	"github.com/uma-serve/uma-serve/bench/replay"
	results "github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/meridian"
)

// replay runs each side in virtual time.
func (o *runOptions) replay(name string, sides []measure.Side, flags map[string]string, args []string,
	progress func(string, int, int)) ([]*results.Report, error) {
	if len(args) > 0 || o.socket != "" || o.url != "" || len(o.sweep) > 0 {
		return nil, errors.New("--mode replay uses no server and no closed loop: leave out --socket, --url, " +
			"--concurrency and uma-serve's options")
	}
	decoder, err := replay.ParseDecoder(o.decoder)
	if err != nil {
		return nil, err
	}
	var out []*results.Report
	for _, s := range sides {
		if len(s.Flags) > 0 {
			return nil, fmt.Errorf("side %s has options of uma-serve, which --mode replay does not start", s.Name)
		}
		done := 0
		cfg := replay.Config{Name: name, Side: s.Name, Workload: o.workload, Policy: cmp.Or(s.Policy, "uma"),
			Target:      time.Duration(s.TargetMs * float64(time.Millisecond)),
			ThinkBudget: s.ThinkBudget, Decoder: decoder, Options: o.options, Repeats: o.repeats, Cells: o.cells,
			ThinkEvict:  o.thinkEvict,
			Environment: measure.Environment(flags), Done: func() { done++; progress(s.Name, done, o.repeats) }}
		if cfg.Meridian, err = o.phaseControl(s); err != nil {
			return nil, fmt.Errorf("side %s: %w", s.Name, err)
		}
		if s.ThinkBudget == 0 && s.Policy != "stock" {
			cfg.ThinkBudget = 4096 // Meridian's own cap
		}
		if len(sides) > 1 {
			cfg.Name += "-" + s.Name
		}
		r, err := replay.Run(cfg)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// phaseControl is the [meridian] table of a side in a replay.
func (o *runOptions) phaseControl(s measure.Side) (meridian.Config, error) {
	cfg := meridian.DefaultConfig()
	for i := 1; i < len(s.Args); i += 2 {
		if s.Args[i-1] != "--meridian" {
			continue
		}
		if err := config.ParseMeridian(&cfg, s.Args[i]); err != nil {
			return cfg, err
		}
	}
	return cfg, cfg.EarlyExit.UnmarshalText([]byte(cmp.Or(s.EarlyExit, o.earlyExit, "off")))
}
