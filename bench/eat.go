package bench

import (
	"context"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/heldout"
)

// EATConfig compares ending thinking by a signal, EAT or RPDI, with ending it by a plain token cap.
type EATConfig struct {
	Eval EvalConfig // problems, concurrency, seed, temperature
	// Deltas are the thresholds of EAT's EMA variance (meridian.eat_ema_variance_threshold), Lambdas those of RPDI's
	// index (meridian.rpdi_threshold, or rpdi_indicator_threshold where RPDI has "rpdi_form=indicator"), Caps the
	// budgets in tokens.
	Deltas, Lambdas []float64
	Caps            []int
	// Check are problems by which no threshold is chosen: each signal is tried on them with the threshold that the
	// other problems chose. None: no check.
	Check []heldout.Problem
	// Loss is the accuracy (0…1) that a threshold may cost on the problems that choose it.
	Loss float64
	// Serve starts the daemon with further options and returns its socket; stop ends it.
	Serve func(options ...string) (socket string, stop func() error, err error)
	// EAT and RPDI are the options of [meridian] that are the same for all thresholds of a signal.
	EAT, RPDI []string
	Log       io.Writer
}

// EATReport is the result of RunEAT.
type EATReport struct {
	Points []EATPoint `json:"points"`
	Checks []EATCheck `json:"checks,omitempty"`
}

// EATPoint is one run over all problems.
type EATPoint struct {
	Kind  string    `json:"kind"`  // "free": as the model decides, "eat", "rpdi", "cap"
	Value float64   `json:"value"` // nats², a ratio, tokens
	Score EvalScore `json:"score"`
}

// EATCheck compares a signal with free thinking on the problems of EATConfig.Check.
type EATCheck struct {
	Kind  string    `json:"kind"`  // "eat", "rpdi"
	Value float64   `json:"value"` // the threshold that the other problems chose
	Free  EvalScore `json:"free"`  // as the model decides
	Score EvalScore `json:"score"`
	// Saved is the fraction of think tokens that were saved, Gained the difference in accuracy; both with 95 %
	// intervals.
	Saved      float64    `json:"saved"`
	SavedCI95  [2]float64 `json:"saved_ci95"`
	Gained     float64    `json:"gained"`
	GainedCI95 [2]float64 `json:"gained_ci95"`
}

// RunEAT asks all problems once for each point, and those of the check once for each signal and once without.
func RunEAT(ctx context.Context, cfg EATConfig) (*EATReport, error) {
	out := &EATReport{}
	run := func(problems []heldout.Problem, kind string, value float64) (*EvalReport, error) {
		var flags []string
		var think wire.Think
		threshold := strconv.FormatFloat(value, 'g', -1, 64)
		switch kind {
		case "eat":
			think.EarlyExit = wire.ExitEAT
			flags = meridianFlags(cfg.EAT, "eat_ema_variance_threshold="+threshold)
		case "rpdi":
			think.EarlyExit = wire.ExitRPDI
			key := "rpdi_threshold="
			if slices.Contains(cfg.RPDI, "rpdi_form=indicator") {
				key = "rpdi_indicator_threshold="
			}
			flags = meridianFlags(cfg.RPDI, key+threshold)
		case "cap":
			think.BudgetTokens = int(value)
		}
		socket, stop, err := cfg.Serve(flags...)
		if err != nil {
			return nil, err
		}
		e := cfg.Eval
		e.Socket, e.Think, e.Problems = socket, think, problems
		r, err := RunEval(ctx, e)
		err = errors.Join(err, stop())
		if err != nil {
			return nil, fmt.Errorf("%s %v: %w", kind, value, err)
		}
		say(cfg.Log, "%s %v: %.1f %% right, %.1f think tokens", kind, value, 100*r.Overall.Accuracy,
			r.Overall.ThinkTokens)
		return r, nil
	}
	chosen := map[string]EATPoint{}
	points := func(kind string, values ...float64) error {
		for _, v := range values {
			r, err := run(cfg.Eval.Problems, kind, v)
			if err != nil {
				return err
			}
			p := EATPoint{kind, v, r.Overall}
			out.Points = append(out.Points, p)
			free, best := out.Points[0].Score, chosen[kind]
			if p.Score.Accuracy >= free.Accuracy-cfg.Loss &&
				(best.Kind == "" || p.Score.ThinkTokens < best.Score.ThinkTokens) {
				chosen[kind] = p
			}
		}
		return nil
	}
	caps := make([]float64, len(cfg.Caps))
	for i, c := range cfg.Caps {
		caps[i] = float64(c)
	}
	err := points("free", 0)
	for _, p := range []struct {
		kind   string
		values []float64
	}{{"eat", cfg.Deltas}, {"rpdi", cfg.Lambdas}, {"cap", caps}} {
		if err == nil {
			err = points(p.kind, p.values...)
		}
	}
	if err != nil || len(cfg.Check) == 0 {
		return out, err
	}
	// Other random numbers as well.
	cfg.Eval.Seed += uint64(len(cfg.Eval.Problems) * cfg.Eval.Repeat)
	free, err := run(cfg.Check, "free", 0)
	if err != nil {
		return out, err
	}
	for _, kind := range []string{"eat", "rpdi"} {
		p, ok := chosen[kind]
		if !ok {
			say(cfg.Log, "%s: every threshold costs more than %.1f %% of accuracy, so there is none to check", kind,
				100*cfg.Loss)
			continue
		}
		r, err := run(cfg.Check, kind, p.Value)
		if err != nil {
			return out, err
		}
		c := EATCheck{Kind: kind, Value: p.Value, Free: free.Overall, Score: r.Overall}
		c.compare(free.answers, r.answers, cfg.Eval.Repeat, cfg.Eval.Seed)
		out.Checks = append(out.Checks, c)
	}
	return out, nil
}

// meridianFlags returns the daemon's flags for options of [meridian].
func meridianFlags(options []string, more ...string) []string {
	var flags []string
	for _, o := range slices.Concat(options, more) {
		flags = append(flags, "--meridian", o)
	}
	return flags
}

// resamples is the number of resamples of a bootstrap.
const resamples = 10_000

// compare fills in the differences of two runs over the same problems, each asked repeat times. The intervals are of a
// paired bootstrap (Efron 1979) over problems: a problem's answers of both runs are drawn together.
func (c *EATCheck) compare(free, signal []answered, repeat int, seed uint64) {
	type sums struct{ free, signal, gained int }
	problems := make([]sums, len(free)/repeat)
	for i := range free {
		p := &problems[i/repeat]
		p.free += free[i].think
		p.signal += signal[i].think
		if signal[i].right {
			p.gained++
		}
		if free[i].right {
			p.gained--
		}
	}
	differences := func(draw func(i int) sums) (saved, gained float64) {
		var all sums
		for i := range problems {
			p := draw(i)
			all.free += p.free
			all.signal += p.signal
			all.gained += p.gained
		}
		return 1 - float64(all.signal)/float64(max(1, all.free)), float64(all.gained) / float64(len(free))
	}
	c.Saved, c.Gained = differences(func(i int) sums { return problems[i] })
	rng := rand.New(rand.NewPCG(seed, resamples))
	saved, gained := make([]float64, resamples), make([]float64, resamples)
	for k := range resamples {
		saved[k], gained[k] = differences(func(int) sums { return problems[rng.IntN(len(problems))] })
	}
	c.SavedCI95 = [2]float64{quantile(saved, 0.025), quantile(saved, 0.975)}
	c.GainedCI95 = [2]float64{quantile(gained, 0.025), quantile(gained, 0.975)}
}

// SignalName names a way to end thinking in a table.
func SignalName(kind string, value float64) string {
	switch kind {
	case "eat":
		return fmt.Sprintf("EAT, δ = %.3g nats²", value)
	case "rpdi":
		return fmt.Sprintf("RPDI, λ = %.3g", value)
	case "cap":
		return fmt.Sprintf("cap of %.0f tokens", value)
	}
	return "as the model decides"
}

// Markdown writes the points as a table, and the check as another.
func (r *EATReport) Markdown(w io.Writer) {
	row := func(name string, s EvalScore, free float64) {
		fmt.Fprintf(w, "| %s | %d of %d = %.1f %% | %.1f … %.1f %% | %.1f | %.1f %% |", name, s.Right, s.Asked,
			100*s.Accuracy, 100*s.CI95[0], 100*s.CI95[1], s.ThinkTokens, 100*(1-s.ThinkTokens/max(free, 1e-9)))
	}
	const head = "| how thinking ends | right | 95 % interval | think tokens, mean | saved |"
	fmt.Fprintln(w, head+"\n|---|---|---|---|---|")
	for _, p := range r.Points {
		row(SignalName(p.Kind, p.Value), p.Score, r.Points[0].Score.ThinkTokens)
		fmt.Fprintln(w)
	}
	if len(r.Checks) == 0 {
		return
	}
	fmt.Fprintln(w, "\nOn problems that the thresholds were not chosen by:\n\n"+head+
		" 95 % interval | accuracy against free thinking, points | 95 % interval |\n|---|---|---|---|---|---|---|---|")
	free := r.Checks[0].Free
	row(SignalName("free", 0), free, free.ThinkTokens)
	fmt.Fprintln(w, " | | |")
	for _, c := range r.Checks {
		row(SignalName(c.Kind, c.Value), c.Score, free.ThinkTokens)
		fmt.Fprintf(w, " %.1f … %.1f %% | %+.1f | %+.1f … %+.1f |\n", 100*c.SavedCI95[0], 100*c.SavedCI95[1],
			100*c.Gained, 100*c.GainedCI95[0], 100*c.GainedCI95[1])
	}
}

// PlotEAT draws accuracy over think tokens, a curve each for EAT, RPDI and the plain cap, with the 95 % intervals, as
// PNG.
func PlotEAT(file string, points []EATPoint) error {
	p := plot.New()
	p.Title.Text = "Ending thinking early: accuracy against think tokens"
	p.X.Label.Text, p.Y.Label.Text = "think tokens, mean", "problems answered right, %"
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(3)
	p.Y.Min, p.Y.Max, p.X.Min = 0, 100, 0
	for _, pt := range points {
		p.X.Max = max(p.X.Max, pt.Score.ThinkTokens*1.05)
	}
	p.Add(plotter.NewGrid())
	for _, k := range []struct {
		kind, name string
		c          color.Color
		shape      draw.GlyphDrawer
	}{
		{"cap", "plain token cap", color.RGBA{R: 0xc0, G: 0x50, B: 0x30, A: 0xff}, draw.BoxGlyph{}},
		{"eat", "EAT, by δ", color.RGBA{R: 0x20, G: 0x60, B: 0xb0, A: 0xff}, draw.CircleGlyph{}},
		{"rpdi", "RPDI, by λ", color.RGBA{R: 0x30, G: 0x90, B: 0x50, A: 0xff}, draw.CrossGlyph{}},
		{"free", "as the model decides", color.Black, draw.PyramidGlyph{}},
	} {
		var xy plotter.XYs
		var ey plotter.YErrors
		for _, pt := range points {
			if pt.Kind != k.kind {
				continue
			}
			s := pt.Score
			xy = append(xy, plotter.XY{X: s.ThinkTokens, Y: 100 * s.Accuracy})
			ey = append(ey, struct{ Low, High float64 }{100 * (s.Accuracy - s.CI95[0]), 100 * (s.CI95[1] - s.Accuracy)})
		}
		if len(xy) == 0 {
			continue
		}
		order := make([]int, len(xy))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int {
			if xy[a].X < xy[b].X {
				return -1
			}
			return 1
		})
		sx, se := make(plotter.XYs, len(xy)), make(plotter.YErrors, len(xy))
		for i, j := range order {
			sx[i], se[i] = xy[j], ey[j]
		}
		line, dots, err := plotter.NewLinePoints(sx)
		if err != nil {
			return err
		}
		bars, err := plotter.NewYErrorBars(struct {
			plotter.XYer
			plotter.YErrorer
		}{sx, se})
		if err != nil {
			return err
		}
		line.Color, dots.Color, bars.Color = k.c, k.c, k.c
		dots.Shape, dots.Radius, line.Width = k.shape, vg.Points(3.5), vg.Points(1.5)
		p.Add(bars, line, dots)
		p.Legend.Add(k.name, line, dots)
	}
	return p.Save(7*vg.Inch, 4.2*vg.Inch, file)
}
