package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
)

// fidelityRow is a workload, or a part of one, as it was and as it was predicted.
type fidelityRow struct {
	Workload  string     `json:"workload"`
	Real      bench.Seen `json:"real"`
	Simulated bench.Seen `json:"simulated"`
	Part      bool       `json:"part,omitempty"` // of the workload above
	// Errors are simulated over real of TTFT p50 and p95, ITL p50 and p95, in percent beyond it: of several rounds the
	// medians of the rounds' errors, because a round's prediction is of that round.
	Errors [4]float64 `json:"errors_percent"`
	// Least and Most are the smallest and largest errors of several rounds.
	Least *[4]float64 `json:"least_percent,omitempty"`
	Most  *[4]float64 `json:"most_percent,omitempty"`
}

func fidelityCommand() *cobra.Command {
	f := fidelity{log: os.Stderr}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "fidelity [-- FLAGS OF uma-serve]",
		Short: "compare uma-sim's predictions with the daemon's measured times",
		Long: `Run uma-serve on decode-sweep, storm and shared-prefix with --trace and measure times at the client. Then
simulate each recording with uma-sim (same arrivals, same lengths) and compare. --unseen takes agent-chain, two-app and
long-context instead, workloads that the simulator was not developed on. --cost selects the step times:

  recording    uma-sim fit of the recorded steps (default)
  daemon       the coefficients that the daemon had learned by the end
  calibration  uma-sim fit of other runs before, between and after the predicted ones

--rounds repeats all of it; the table then has the medians of the rounds, of their errors too, and the least and the
most of these. What the clients see of the same requests differs from round to round, on a shared machine by more
than the target. --again takes the --rounds of the recordings.

uma-serve and uma-sim are those next to this binary. Stop other programs while it runs (about five minutes on two
cores with a model of 135 M parameters; with --unseen ten).`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				return fmt.Errorf("unexpected argument %q; flags of uma-serve come after --", args[0])
			}
			f.flags = args
			rows, err := f.run()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(os.Stdout).Encode(rows)
			}
			printFidelity(os.Stdout, rows)
			if worst := worstError(rows); worst > f.target {
				return fmt.Errorf("the worst error is %.1f %%, the target %.0f %%", worst, f.target)
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.model, "model", "m", "", "GGUF `file` (default: a generated one of 135 M parameters, Q8_0)")
	fs.StringVar(&f.policy, "policy", "", "the daemon's `policy` (default: its own)")
	fs.StringVar(&f.cost, "cost", "recording", "source of step times: recording, daemon, calibration")
	fs.BoolVar(&f.unseen, "unseen", false, "agent-chain, two-app and long-context instead of the three")
	fs.StringSliceVar(&f.only, "only", nil, "`workloads` to run (default: all)")
	fs.IntVar(&f.rounds, "rounds", 1, "times that each workload runs; the table has the medians")
	fs.StringVar(&f.out, "out", "", "keep recordings and results in `directory`")
	fs.StringVar(&f.again, "again", "", "run no daemon; simulate the recordings in `directory` (from --out) again")
	fs.Float64Var(&f.scale, "scale", 1, "factor on the length of the workloads")
	fs.Float64Var(&f.target, "target", 15, "maximum error in `percent`; exit status 1 above it")
	fs.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type fidelity struct {
	model, policy, out, again, cost string
	only, flags                     []string
	scale, target                   float64
	rounds                          int
	unseen                          bool
	log                             io.Writer
	beside                          string
}

func (f *fidelity) run() ([]fidelityRow, error) {
	if !slices.Contains([]string{"calibration", "daemon", "recording"}, f.cost) {
		return nil, fmt.Errorf("--cost is %q; it must be recording, daemon or calibration", f.cost)
	}
	if f.rounds < 1 {
		return nil, fmt.Errorf("--rounds is %d; it must be at least 1", f.rounds)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f.beside = filepath.Dir(self)
	dir := f.again
	if dir == "" {
		if f.model, err = benchModel(f.model); err != nil {
			return nil, err
		}
		if dir = f.out; dir == "" {
			if dir, err = os.MkdirTemp("", "uma-fidelity"); err != nil {
				return nil, err
			}
			defer os.RemoveAll(dir)
		} else if err = os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	// A cache directory that is relative is none to the daemon.
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	workloads := bench.FidelityWorkloads(f.scale)
	if f.unseen {
		workloads = bench.UnseenWorkloads(f.scale)
	}
	wanted := func(k int) bool {
		return k >= 0 && k < len(workloads) && (len(f.only) == 0 || slices.Contains(f.only, workloads[k].Name))
	}
	if !slices.ContainsFunc([]int{0, 1, 2}, wanted) {
		var names []string
		for _, w := range workloads {
			names = append(names, w.Name)
		}
		return nil, fmt.Errorf("--only is %v; workloads are %s", f.only, strings.Join(names, ", "))
	}
	if f.rounds == 1 {
		return f.round(dir, workloads, wanted)
	}
	var all [][]fidelityRow
	for k := range f.rounds {
		part := filepath.Join(dir, fmt.Sprintf("round-%d", k+1))
		if f.again == "" {
			if err := os.MkdirAll(part, 0o700); err != nil {
				return nil, err
			}
		}
		rows, err := f.round(part, workloads, wanted)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", k+1, err)
		}
		fmt.Fprintf(f.log, "round %d of %d:\n", k+1, f.rounds)
		printFidelity(f.log, rows)
		all = append(all, rows)
	}
	return medianRows(all), nil
}

// round records the wanted workloads in dir, unless they have been recorded, and predicts them.
func (f *fidelity) round(dir string, workloads []bench.FidelityWorkload, wanted func(int) bool) ([]fidelityRow, error) {
	if f.again == "" {
		began := time.Now()
		record := func(w bench.FidelityWorkload, save func(*bench.FidelityWorkload, string) error) error {
			fmt.Fprintf(f.log, "%4.0f s  %s\n", time.Since(began).Seconds(), w.Name)
			if err := save(&w, dir); err != nil {
				return fmt.Errorf("%s: %w", w.Name, err)
			}
			return nil
		}
		for k := range len(workloads) + 1 {
			if wanted(k-1) || wanted(k) {
				if err := record(bench.FidelityCalibration(k, f.scale), f.calibrate); err != nil {
					return nil, err
				}
			}
			if wanted(k) {
				if err := record(workloads[k], f.record); err != nil {
					return nil, err
				}
			}
		}
		fmt.Fprintf(f.log, "%4.0f s  simulating\n", time.Since(began).Seconds())
	}
	var rows []fidelityRow
	for k, w := range workloads {
		if !wanted(k) {
			continue
		}
		these, err := f.compare(w.Name, k, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}
		rows = append(rows, these...)
	}
	return rows, nil
}

// daemon runs fn against a daemon whose cost model is kept in dir.
func (f *fidelity) daemon(dir string, args []string, fn func(*daemonproc.Proc) error) error {
	args = append([]string{"-m", f.model, "--ctx-size", "16384", "--parallel", "8"}, append(args, f.flags...)...)
	if f.policy != "" {
		args = append(args, "--policy", f.policy)
	}
	p, err := daemonproc.Start(filepath.Join(f.beside, "uma-serve"), time.Minute,
		[]string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}, args...)
	if err != nil {
		return err
	}
	err = fn(p)
	return errors.Join(err, p.Stop(20*time.Second))
}

// calibrate records the steps of a part of the calibration. What the daemon learns from it, it saves for the next ones.
func (f *fidelity) calibrate(w *bench.FidelityWorkload, dir string) error {
	return f.daemon(dir, []string{"--trace", filepath.Join(dir, w.Name+".trace")}, func(p *daemonproc.Proc) error {
		_, err := w.Run(p)
		return err
	})
}

// record runs a workload and keeps in dir what its clients saw, its trace, and the cost model at its end.
func (f *fidelity) record(w *bench.FidelityWorkload, dir string) error {
	at := func(what string) string { return filepath.Join(dir, w.Name+what) }
	err := f.daemon(dir, []string{"--trace", at(".trace")}, func(p *daemonproc.Proc) error {
		seen, err := w.Run(p)
		if err != nil {
			return err
		}
		data, err := json.Marshal(seen)
		if err != nil {
			return err
		}
		return os.WriteFile(at(".seen.json"), data, 0o600)
	})
	if err != nil {
		return err
	}
	saved, err := filepath.Glob(filepath.Join(dir, "cache", "uma-serve", "cost", "*.json"))
	if err != nil || len(saved) != 1 {
		return fmt.Errorf("the daemon saved %d cost models; want 1 (%v)", len(saved), err)
	}
	data, err := os.ReadFile(saved[0])
	if err != nil {
		return err
	}
	return os.WriteFile(at(".cost.json"), data, 0o600)
}

// uma runs uma-sim and returns what it prints.
func (f *fidelity) uma(args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(f.beside, "uma-sim"), args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("uma-sim: %w\n%s", err, &stderr)
	}
	return out, nil
}

// compare simulates what was recorded of the nth workload.
func (f *fidelity) compare(name string, nth int, dir string) ([]fidelityRow, error) {
	at := func(what string) string { return filepath.Join(dir, name+what) }
	data, err := os.ReadFile(at(".seen.json"))
	if err != nil {
		return nil, err
	}
	var seen []bench.Served
	if err := json.Unmarshal(data, &seen); err != nil {
		return nil, err
	}
	cost := at(".cost.json")
	if f.cost != "daemon" {
		sources := []string{at(".trace")}
		if f.cost == "calibration" {
			if sources, err = filepath.Glob(filepath.Join(dir, "calibration*.trace")); err != nil || len(sources) == 0 {
				return nil, fmt.Errorf("%s holds no calibration-1.trace (%v)", dir, err)
			}
		}
		args := []string{"fit"}
		for _, s := range sources {
			args = append(args, "--uma-trace", s)
		}
		if f.cost == "calibration" {
			// The parts before and after the workload tell how fast the machine was at that time.
			for _, k := range []int{nth, nth + 1} {
				if part := filepath.Join(dir, bench.FidelityCalibration(k, f.scale).Name+
					".trace"); slices.Contains(sources, part) {
					args = append(args, "--as-fast-as", part)
				}
			}
		}
		fitted, err := f.uma(args...)
		if err != nil {
			return nil, err
		}
		cost = at(".fitted.json")
		if err := os.WriteFile(cost, fitted, 0o600); err != nil {
			return nil, err
		}
	}
	if data, err = f.uma("run", "--workload", at(".trace"), "--set", "cost_model="+cost, "--json", "--set",
		"record_itl=true"); err != nil {
		return nil, err
	}
	var rep struct {
		Requests []struct {
			Arrival float64   `json:"arrival_us"`
			TTFT    float64   `json:"ttft_us"`
			Gaps    []float64 `json:"itls_us"`
		} `json:"requests"`
	}
	if err := json.Unmarshal(data, &rep); err != nil {
		return nil, fmt.Errorf("uma-sim: %w", err)
	}
	if len(rep.Requests) != len(seen) {
		return nil, fmt.Errorf("%d requests were recorded, the clients sent %d", len(rep.Requests), len(seen))
	}
	simulated := make([]bench.Served, len(seen))
	for i, r := range rep.Requests {
		s := &simulated[i]
		s.Group, s.SentMs, s.TTFTMs = seen[i].Group, r.Arrival/1000, r.TTFT/1000
		for _, g := range r.Gaps {
			s.GapsMs = append(s.GapsMs, g/1000)
		}
	}
	if data, err = json.Marshal(simulated); err == nil {
		err = os.WriteFile(at(".simulated.json"), data, 0o600)
	}
	rows := []fidelityRow{compared(name, seen, simulated)}
	var groups []string
	for i := range seen {
		if g := seen[i].Group; g != "" && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	for _, g := range groups {
		of := func(all []bench.Served) (part []bench.Served) {
			for i := range all {
				if all[i].Group == g {
					part = append(part, all[i])
				}
			}
			return part
		}
		part := compared(g, of(seen), of(simulated))
		part.Part = true
		rows = append(rows, part)
	}
	return rows, err
}

// medianRows has the medians of the rounds, number by number. Every round has the same rows.
func medianRows(rounds [][]fidelityRow) []fidelityRow {
	numbers := func(r *fidelityRow) [12]*float64 {
		a, b, e := &r.Real, &r.Simulated, &r.Errors
		return [12]*float64{&a.TTFTP50, &b.TTFTP50, &a.TTFTP95, &b.TTFTP95, &a.ITLP50, &b.ITLP50, &a.ITLP95, &b.ITLP95,
			&e[0], &e[1], &e[2], &e[3]}
	}
	rows := slices.Clone(rounds[0])
	for i := range rows {
		rows[i].Least, rows[i].Most = new([4]float64), new([4]float64)
		for k, to := range numbers(&rows[i]) {
			var all []float64
			for _, r := range rounds {
				all = append(all, *numbers(&r[i])[k])
			}
			slices.Sort(all)
			*to = (all[(len(all)-1)/2] + all[len(all)/2]) / 2
			if e := k - 8; e >= 0 {
				rows[i].Least[e], rows[i].Most[e] = all[0], all[len(all)-1]
			}
		}
	}
	return rows
}

// cells returns the four numbers of a row: real, simulated.
func (r *fidelityRow) cells() [4][2]float64 {
	a, b := &r.Real, &r.Simulated
	return [4][2]float64{{a.TTFTP50, b.TTFTP50}, {a.TTFTP95, b.TTFTP95}, {a.ITLP50, b.ITLP50}, {a.ITLP95, b.ITLP95}}
}

func deviation(c [2]float64) float64 {
	if c[0] == 0 {
		return 0
	}
	return 100 * (c[1]/c[0] - 1)
}

// compared returns the row of one round.
func compared(name string, seen, simulated []bench.Served) fidelityRow {
	r := fidelityRow{Workload: name, Real: bench.Summarise(seen), Simulated: bench.Summarise(simulated)}
	for k, c := range r.cells() {
		r.Errors[k] = deviation(c)
	}
	return r
}

func worstError(rows []fidelityRow) (worst float64) {
	for i := range rows {
		if rows[i].Part {
			continue
		}
		for _, e := range rows[i].Errors {
			worst = max(worst, math.Abs(e))
		}
	}
	return worst
}

func printFidelity(w io.Writer, rows []fidelityRow) {
	fmt.Fprintln(w, "| workload | TTFT p50 ms: real, simulated, error | TTFT p95 ms | ITL p50 ms | ITL p95 ms "+
		"|\n|---|---|---|---|---|")
	for i := range rows {
		r := &rows[i]
		name := r.Workload
		if r.Part {
			name = "– " + name
		}
		fmt.Fprintf(w, "| %s ", name)
		for k, c := range r.cells() {
			if c[0] == 0 {
				fmt.Fprint(w, "| – ")
				continue
			}
			fmt.Fprintf(w, "| %.1f, %.1f, %+.1f %% ", c[0], c[1], r.Errors[k])
			if r.Least != nil {
				fmt.Fprintf(w, "(%+.0f … %+.0f) ", r.Least[k], r.Most[k])
			}
		}
		fmt.Fprintln(w, "|")
	}
}
