package workload

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Spec describes a workload: which clients send which requests, how often. Its YAML keys are those of BLIS workload
// files; unknown keys are errors. Times are microseconds unless a name says otherwise, rates are requests a second.
type Spec struct {
	Version       string   `yaml:"version"`
	Seed          int64    `yaml:"seed"`
	Category      string   `yaml:"category"` // free text
	AggregateRate float64  `yaml:"aggregate_rate"`
	NumRequests   int64    `yaml:"num_requests"` // 0 = until the horizon
	Horizon       int64    `yaml:"horizon"`      // 0 = until num_requests
	Clients       []Client `yaml:"clients"`
	Cohorts       []Cohort `yaml:"cohorts"`
}

// Client is one source of requests. It either has a share of the aggregate rate (open loop) or a concurrency (closed
// loop: that many users, each sends its next request ThinkTimeUs after its last one ended).
type Client struct {
	ID           string    `yaml:"id"`
	TenantID     string    `yaml:"tenant_id"`
	SLOClass     string    `yaml:"slo_class"`
	Model        string    `yaml:"model"`
	RateFraction float64   `yaml:"rate_fraction"`
	Concurrency  int       `yaml:"concurrency"`
	ThinkTimeUs  int64     `yaml:"think_time_us"`
	Arrival      Arrival   `yaml:"arrival"`
	Input        Lengths   `yaml:"input_distribution"`
	Output       Lengths   `yaml:"output_distribution"`
	PrefixGroup  string    `yaml:"prefix_group"`
	PrefixLength int       `yaml:"prefix_length"` // tokens; 0 = 50
	Streaming    bool      `yaml:"streaming"`
	Timeout      *int64    `yaml:"timeout"`     // microseconds after arrival; sessions default to 300 s, 0 = none
	ClosedLoop   *bool     `yaml:"closed_loop"` // sessions: a round waits for the one before (default true)
	Lifecycle    Lifecycle `yaml:"lifecycle"`
	Reasoning    Reasoning `yaml:"reasoning"`
}

// Cohort is a population of equal clients named id-0, id-1, … that share its rate fraction, on and off in patterns.
type Cohort struct {
	Client     `yaml:",inline"`
	Population int      `yaml:"population"`
	Diurnal    *Diurnal `yaml:"diurnal"`
	Spike      *Spike   `yaml:"spike"`
	Drain      *Drain   `yaml:"drain"`
}

// Arrival is an arrival process: poisson, gamma, weibull (cv: coefficient of variation, default 1) or constant.
type Arrival struct {
	Process string   `yaml:"process"`
	CV      *float64 `yaml:"cv"`
}

// Lifecycle restricts a client to windows of time; without any it is always active.
type Lifecycle struct {
	Windows []Window `yaml:"windows"`
}

// Window is [Start, End).
type Window struct {
	StartUs int64 `yaml:"start_us"`
	EndUs   int64 `yaml:"end_us"`
}

// Reasoning makes requests think first and sessions of several rounds.
type Reasoning struct {
	ReasonRatio *Lengths   `yaml:"reason_ratio_distribution"` // percent of the output that is thinking
	MultiTurn   *MultiTurn `yaml:"multi_turn"`
}

// MultiTurn makes each arrival of a client a session of rounds.
type MultiTurn struct {
	MaxRounds     int    `yaml:"max_rounds"`
	ThinkTimeUs   int64  `yaml:"think_time_us"`
	ContextGrowth string `yaml:"context_growth"` // accumulate: a round's prompt contains everything before it
	SingleSession bool   `yaml:"single_session"` // the client starts one session, not one per arrival
}

// Diurnal is a day of 24 on-windows, an hour each at the peak and 1/ratio of one at the trough, cosine between.
type Diurnal struct {
	PeakHour          int     `yaml:"peak_hour"`
	PeakToTroughRatio float64 `yaml:"peak_to_trough_ratio"`
}

// Spike is one on-window.
type Spike struct {
	StartUs    int64 `yaml:"start_time_us"`
	DurationUs int64 `yaml:"duration_us"`
}

// Drain is on until Start and then in ten ever shorter windows.
type Drain struct {
	StartUs        int64 `yaml:"start_time_us"`
	RampDurationUs int64 `yaml:"ramp_duration_us"`
}

// ParseSpec reads a YAML workload specification.
func ParseSpec(data []byte) (*Spec, error) {
	s := &Spec{Seed: 42}
	if err := yaml.UnmarshalWithOptions(data, s, yaml.DisallowUnknownField()); err != nil {
		msg := err.Error()
		for _, key := range []string{"servegen_data", "inference_perf", "network", "multimodal"} {
			if strings.Contains(msg, fmt.Sprintf("unknown field %q", key)) {
				return nil, fmt.Errorf("workload spec: %q describes what the simulator does not model; convert it to "+
					"clients first", key)
			}
		}
		return nil, fmt.Errorf("workload spec: %w", err)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s, nil
}

const (
	maxClients    = 1 << 20
	maxPopulation = 1 << 20
)

// Check returns an error for everything that is wrong with the spec.
func (s *Spec) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("workload spec: "+format, args...)) }
	if s.Version != "" && s.Version != "2" && s.Version != "1" {
		bad("version %q: must be \"2\"", s.Version)
	}
	if math.IsNaN(s.AggregateRate) || s.AggregateRate < 0 || s.AggregateRate > 1e9 {
		bad("aggregate_rate = %v: must be between 0 and 1e9 requests a second", s.AggregateRate)
	}
	if s.NumRequests < 0 || s.Horizon < 0 {
		bad("num_requests and horizon must be ≥ 0")
	}
	if s.NumRequests == 0 && s.Horizon == 0 {
		bad("one of num_requests and horizon must be given, or the workload never ends")
	}
	if len(s.Clients)+len(s.Cohorts) == 0 {
		bad("there are no clients and no cohorts")
	}
	if len(s.Clients) > maxClients {
		bad("%d clients: at most %d", len(s.Clients), maxClients)
	}
	open := false
	for i := range s.Clients {
		c := &s.Clients[i]
		open = open || c.RateFraction > 0
		c.check(func(format string, args ...any) { bad("client %q: "+format, append([]any{c.ID}, args...)...) })
	}
	total := 0
	for i := range s.Cohorts {
		c := &s.Cohorts[i]
		open = open || c.RateFraction > 0
		total += c.Population
		fail := func(format string, args ...any) { bad("cohort %q: "+format, append([]any{c.ID}, args...)...) }
		c.Client.check(fail)
		c.check(total, fail)
	}
	if errs == nil {
		s.checkWindows(bad)
	}
	if open && s.AggregateRate == 0 {
		bad("aggregate_rate must be > 0: clients have rate fractions")
	}
	return errors.Join(errs...)
}

// check reports what is wrong with a client.
func (c *Client) check(fail func(format string, args ...any)) {
	if !(c.RateFraction >= 0) || math.IsInf(c.RateFraction, 0) || c.Concurrency < 0 || c.Concurrency > maxClients {
		fail("rate_fraction and concurrency must be ≥ 0 and finite")
	}
	if (c.RateFraction > 0) == (c.Concurrency > 0) {
		fail("give either rate_fraction or concurrency")
	}
	if c.RateFraction > 0 && !slices.Contains([]string{"", "poisson", "gamma", "weibull", "constant"},
		c.Arrival.Process) {
		fail("arrival.process %q is unknown; valid are poisson, gamma, weibull, constant", c.Arrival.Process)
	}
	if cv := c.Arrival.CV; cv != nil && !(*cv > 0 && *cv <= 100) {
		fail("arrival.cv = %v: must be in (0, 100]", *cv)
	}
	for _, l := range []struct {
		name string
		l    *Lengths
	}{{"input_distribution", &c.Input}, {"output_distribution", &c.Output},
		{"reasoning.reason_ratio_distribution", c.Reasoning.ReasonRatio}} {
		if l.l != nil {
			if err := l.l.check(); err != nil {
				fail("%s: %v", l.name, err)
			}
		}
	}
	if c.PrefixLength < 0 || c.PrefixLength > MaxTokens || c.PrefixLength > 0 && c.PrefixGroup == "" {
		fail("prefix_length = %d: must be ≥ 0 and needs a prefix_group", c.PrefixLength)
	}
	if c.ThinkTimeUs < 0 || c.Timeout != nil && *c.Timeout < 0 {
		fail("think_time_us and timeout must be ≥ 0")
	}
	for _, w := range c.Lifecycle.Windows {
		if w.StartUs < 0 || w.EndUs <= w.StartUs {
			fail("lifecycle window [%d, %d): must not be empty", w.StartUs, w.EndUs)
		}
	}
	if mt := c.Reasoning.MultiTurn; mt != nil {
		if mt.MaxRounds < 1 || mt.ThinkTimeUs < 0 {
			fail("reasoning.multi_turn: max_rounds must be ≥ 1 and think_time_us ≥ 0")
		}
		if !slices.Contains([]string{"", "accumulate", "none"}, mt.ContextGrowth) {
			fail("reasoning.multi_turn.context_growth %q is unknown; valid are accumulate and none",
				mt.ContextGrowth)
		}
		if c.Concurrency > 0 {
			fail("a client with concurrency cannot have multi_turn sessions")
		}
	}
}

// check reports what is wrong with a cohort beyond its client. total is the population of all cohorts so far.
func (c *Cohort) check(total int, fail func(format string, args ...any)) {
	if c.Population < 1 || total > maxPopulation {
		fail("population = %d: must be ≥ 1, %d over all cohorts", c.Population, maxPopulation)
	}
	if d := c.Diurnal; d != nil && !(d.PeakToTroughRatio >= 1 && d.PeakHour >= 0 && d.PeakHour < 24) {
		fail("diurnal: peak_hour must be 0 to 23 and peak_to_trough_ratio ≥ 1")
	}
	if p := c.Spike; p != nil && (p.StartUs < 0 || p.DurationUs < 1) {
		fail("spike: start_time_us must be ≥ 0 and duration_us ≥ 1")
	}
	if d := c.Drain; d != nil && (d.StartUs < 0 || d.RampDurationUs < 1) {
		fail("drain: start_time_us must be ≥ 0 and ramp_duration_us ≥ 1")
	}
}

// maxSkipped bounds the arrivals that are drawn and thrown away before a client's last window.
const maxSkipped = 1e9

// checkWindows refuses windows so far away that drawing up to them would not end.
func (s *Spec) checkWindows(bad func(string, ...any)) {
	all := s.clients()
	sum := 0.0
	for i := range all {
		sum += all[i].RateFraction
	}
	for i := range all {
		last := int64(0)
		for _, w := range all[i].Lifecycle.Windows {
			last = max(last, w.EndUs)
		}
		if s.Horizon > 0 {
			last = min(last, s.Horizon)
		}
		if n := float64(last) / 1e6 * s.AggregateRate * all[i].RateFraction / max(sum, 1e-300); n > maxSkipped {
			bad("client %q: about %.0f arrivals before the end of its last window: at most %.0f", all[i].ID, n,
				maxSkipped)
			return
		}
	}
}

// clients returns the explicit ones and those of the cohorts.
func (s *Spec) clients() []Client {
	out := slices.Clone(s.Clients)
	for i := range s.Cohorts {
		c := &s.Cohorts[i]
		windows := slices.Clone(c.Lifecycle.Windows)
		if d := c.Diurnal; d != nil {
			const hour = int64(3600e6)
			for h := range 24 {
				share := (1+math.Cos(2*math.Pi*float64(
					h-d.PeakHour)/24))/2*(1-1/d.PeakToTroughRatio) + 1/d.PeakToTroughRatio
				from := int64(h) * hour
				windows = append(windows, Window{from, from + min(hour, max(1, int64(float64(hour)*share)))})
			}
		}
		if p := c.Spike; p != nil {
			windows = append(windows, Window{p.StartUs, p.StartUs + p.DurationUs})
		}
		if d := c.Drain; d != nil {
			const parts = 10
			if d.StartUs > 0 {
				windows = append(windows, Window{0, d.StartUs})
			}
			part := max(1, d.RampDurationUs/parts)
			for k := range int64(parts) {
				from := d.StartUs + k*part
				windows = append(windows, Window{from, from + max(1, int64(float64(part)*(float64(parts-k)/parts)))})
			}
		}
		for j := range c.Population {
			m := c.Client
			m.ID = fmt.Sprintf("%s-%d", c.ID, j)
			m.RateFraction = c.RateFraction / float64(c.Population)
			m.Lifecycle.Windows = windows
			out = append(out, m)
		}
	}
	return out
}

func (l *Lifecycle) active(t int64) bool {
	if len(l.Windows) == 0 {
		return true
	}
	for _, w := range l.Windows {
		if t >= w.StartUs && t < w.EndUs {
			return true
		}
	}
	return false
}

// defaultPrefix is the length of a group's prefix when no client gives one, tokens.
const defaultPrefix = 50

// sessionTimeout is a session's deadline when its client gives none, microseconds.
const sessionTimeout = int64(300e6)

func (c *Client) prefixLength() int {
	if c.PrefixGroup == "" {
		return 0
	}
	if c.PrefixLength == 0 {
		return defaultPrefix
	}
	return c.PrefixLength
}

func newRand(seed int64) *rand.Rand { return rand.New(rand.NewSource(seed)) }
