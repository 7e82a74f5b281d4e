package bench

import (
	"context"
	"fmt"
	"image/color"
	"io"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// EATConfig is one comparison of ending thinking by EAT with ending it by a plain token cap.
type EATConfig struct {
	Eval EvalConfig // problems, concurrency, seed; greedy
	// Deltas are the thresholds of EAT's EMA variance (meridian.eat_ema_variance_threshold), Caps the budgets in
	// tokens.
	Deltas []float64
	Caps   []int
	// Serve starts the daemon with further options and returns its socket; stop ends it.
	Serve func(options ...string) (socket string, stop func() error, err error)
	// EAT are the options of EAT that are the same for all thresholds.
	EAT []string
	Log io.Writer
}

// EATPoint is one run over all problems.
type EATPoint struct {
	Kind  string    `json:"kind"`  // "free": as the model decides, "eat", "cap"
	Value float64   `json:"value"` // nats², tokens
	Score EvalScore `json:"score"`
}

// RunEAT asks all problems once for each point.
func RunEAT(ctx context.Context, cfg EATConfig) ([]EATPoint, error) {
	var out []EATPoint
	point := func(kind string, value float64, think wire.Think, options ...string) error {
		socket, stop, err := cfg.Serve(options...)
		if err != nil {
			return err
		}
		e := cfg.Eval
		e.Socket, e.Think = socket, think
		r, err := RunEval(ctx, e)
		if serr := stop(); err == nil {
			err = serr
		}
		if err != nil {
			return fmt.Errorf("%s %v: %w", kind, value, err)
		}
		out = append(out, EATPoint{kind, value, r.Overall})
		say(cfg.Log, "%s %v: %.1f %% right, %.1f think tokens", kind, value, 100*r.Overall.Accuracy,
			r.Overall.ThinkTokens)
		return nil
	}
	if err := point("free", 0, wire.Think{}); err != nil {
		return nil, err
	}
	for _, d := range cfg.Deltas {
		options := append(slices.Clone(cfg.EAT), "eat_ema_variance_threshold="+strconv.FormatFloat(d, 'g', -1, 64))
		var flags []string
		for _, o := range options {
			flags = append(flags, "--meridian", o)
		}
		if err := point("eat", d, wire.Think{EarlyExit: wire.ExitEAT}, flags...); err != nil {
			return nil, err
		}
	}
	for _, c := range cfg.Caps {
		if err := point("cap", float64(c), wire.Think{BudgetTokens: c}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// PrintEAT writes the points as a table.
func PrintEAT(w io.Writer, points []EATPoint) {
	fmt.Fprintln(w, "| how thinking ends | right | 95 % interval | think tokens, mean | saved |\n|---|---|---|---|---|")
	free := points[0].Score.ThinkTokens
	for _, p := range points {
		name := "as the model decides"
		switch p.Kind {
		case "eat":
			name = fmt.Sprintf("EAT, δ = %.3g nats²", p.Value)
		case "cap":
			name = fmt.Sprintf("cap of %.0f tokens", p.Value)
		}
		s := p.Score
		fmt.Fprintf(w, "| %s | %d of %d = %.1f %% | %.1f … %.1f %% | %.1f | %.1f %% |\n", name, s.Right, s.Asked,
			100*s.Accuracy,
			100*s.CI95[0], 100*s.CI95[1], s.ThinkTokens, 100*(1-s.ThinkTokens/max(free, 1e-9)))
	}
}

// PlotEAT draws accuracy over think tokens, a curve each for EAT and the plain cap, with the 95 % intervals, as PNG.
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
