package explore

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/sim"
)

// Summary are the numbers of one run that tables show. Times are milliseconds.
type Summary struct {
	Label string `json:"label"`
	Judgement
	Completed   int64   `json:"completed_requests"`
	Lost        int64   `json:"lost_requests"`
	Seconds     float64 `json:"duration_s"`
	Responses   float64 `json:"responses_per_sec"`
	Tokens      float64 `json:"tokens_per_sec"`
	TTFTP50     float64 `json:"ttft_p50_ms"`
	TTFTP95     float64 `json:"ttft_p95_ms"`
	TTFTP99     float64 `json:"ttft_p99_ms"`
	ITLP50      float64 `json:"itl_p50_ms"`
	ITLP95      float64 `json:"itl_p95_ms"`
	ITLP99      float64 `json:"itl_p99_ms"`
	E2EP50      float64 `json:"e2e_p50_ms"`
	E2EP95      float64 `json:"e2e_p95_ms"`
	WaitP95     float64 `json:"scheduling_delay_p95_ms"`
	Preemptions int64   `json:"preemption_count"`
	HitRate     float64 `json:"cache_hit_rate"`
	PeakBlocks  int     `json:"peak_kv_blocks_used"`
	Error       string  `json:"error,omitempty"`
}

// Summarise reduces a report.
func Summarise(label string, rep *sim.Report) Summary {
	m := rep.Metrics
	s := Summary{Label: label, Judgement: Judge(rep), Completed: m.Completed, Lost: m.Dropped + m.Rejected + m.TimedOut,
		Preemptions: m.Preemptions, PeakBlocks: m.PeakBlocks}
	if rep.Stuck != nil {
		s.Error = rep.Stuck.Error()
	}
	for _, e := range m.Engines {
		s.Seconds = max(s.Seconds, float64(e.Clock)/1e6)
		s.HitRate = e.HitRate
	}
	if s.Seconds > 0 {
		s.Responses, s.Tokens = float64(m.Completed)/s.Seconds, float64(m.OutputTokens)/s.Seconds
	}
	s.TTFTP50, s.TTFTP95, s.TTFTP99 = m.TTFT.PercentileMs(50), m.TTFT.PercentileMs(95), m.TTFT.PercentileMs(99)
	s.ITLP50, s.ITLP95, s.ITLP99 = m.ITL.PercentileMs(50), m.ITL.PercentileMs(95), m.ITL.PercentileMs(99)
	s.E2EP50, s.E2EP95, s.WaitP95 = m.E2E.PercentileMs(50), m.E2E.PercentileMs(95), m.Delay.PercentileMs(95)
	return s
}

// Job is one question: a label and a simulation.
type Job struct {
	Label string
	Run   func() (*sim.Report, error)
}

// Parallel runs jobs on as many cores as there are, reduces each report as soon as it is there (a sweep must not hold
// all of them) and calls done after each, from one goroutine at a time. Results are in the order of the jobs. A
// livelock is a result; any other error ends everything.
func Parallel[T any](jobs []Job, reduce func(Job, *sim.Report) T, done func()) ([]T, error) {
	out := make([]T, len(jobs))
	errs := make([]error, len(jobs))
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		wg.Go(func() {
			for i := range next {
				rep, err := jobs[i].Run()
				if errs[i] = err; rep != nil {
					out[i] = reduce(jobs[i], rep)
				}
				mu.Lock()
				done()
				mu.Unlock()
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	wg.Wait()
	for i, err := range errs {
		var stuck *sim.Stuck
		if err != nil && !errors.As(err, &stuck) {
			return nil, fmt.Errorf("%s: %w", jobs[i].Label, err)
		}
	}
	return out, nil
}

// Sweep runs jobs and summarises each.
func Sweep(jobs []Job, done func()) ([]Summary, error) {
	return Parallel(jobs, func(j Job, rep *sim.Report) Summary { return Summarise(j.Label, rep) }, done)
}

// Saturation finds the highest rate that is still Stable, to 2 %, between a stable and an unstable one.
func Saturation(stable, unstable float64, run func(rate float64) (*sim.Report, error)) (float64, error) {
	for range 12 {
		if unstable-stable <= 0.02*stable {
			break
		}
		mid := math.Sqrt(stable * unstable)
		rep, err := run(mid)
		var stuck *sim.Stuck
		if err != nil && !errors.As(err, &stuck) {
			return 0, err
		}
		if err == nil && Judge(rep).Verdict == Stable {
			stable = mid
		} else {
			unstable = mid
		}
	}
	return stable, nil
}

// maxValues bounds a range.
const maxValues = 10000

// Values expands a range: "1,2,5" or "FROM:TO:STEP" or "FROM:TO:xFACTOR".
func Values(s string) ([]string, error) {
	parts := strings.Split(s, ":")
	if len(parts) == 1 {
		out := strings.Split(s, ",")
		for i := range out {
			if out[i] = strings.TrimSpace(out[i]); out[i] == "" {
				return nil, fmt.Errorf("values %q: an empty value", s)
			}
		}
		return out, nil
	}
	if len(parts) != 3 {
		return nil, fmt.Errorf("values %q: want A,B,C or FROM:TO:STEP or FROM:TO:xFACTOR", s)
	}
	by, factor := strings.CutPrefix(parts[2], "x")
	var num [3]float64
	for i, p := range []string{parts[0], parts[1], by} {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("values %q: %q is not a number", s, p)
		}
		num[i] = f
	}
	from, to, step := num[0], num[1], num[2]
	if factor && (step <= 1 || from <= 0) || !factor && step <= 0 || to < from {
		return nil, fmt.Errorf("values %q: the range must grow", s)
	}
	var out []string
	for i := 0; len(out) <= maxValues; i++ {
		v := from + float64(i)*step
		if factor {
			v = from * math.Pow(step, float64(i))
		}
		if v > to*(1+1e-12) {
			return out, nil
		}
		out = append(out, strconv.FormatFloat(v, 'g', 12, 64))
	}
	return nil, fmt.Errorf("values %q: more than %d values", s, maxValues)
}
