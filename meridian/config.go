package meridian

import (
	"fmt"
	"math"
)

// Config is the [meridian] table of the configuration file. Every field has a default of its own
// (DefaultConfig), so a file names only what it changes.
type Config struct {
	// Markers of the model's thinking; empty lists: detected from the vocabulary (Detect).
	Markers Markers `toml:"markers"`

	// ThinkMode and EarlyExit are what a request gets that does not say.
	ThinkMode Mode      `toml:"think_mode"`
	EarlyExit EarlyExit `toml:"early_exit"`

	// EntropyEnabled false leaves only counting: no signal is computed and only hard_cap and user close a block.
	EntropyEnabled bool `toml:"entropy_enabled"`

	// MinThinkTokens is how long a block may not be closed by a signal (EAT, RPDI), in think tokens.
	MinThinkTokens int `toml:"min_think_tokens"`
	// MaxThinkTokens is the hard cap of a turn, over all its blocks; a request may ask for less, not for more.
	MaxThinkTokens int `toml:"max_think_tokens"`
	// SoftThinkTokens is the soft cap of requests that name none: from there on the block closes as soon as the
	// close tag is among the SoftCapTopN most probable tokens. 0: none.
	SoftThinkTokens int `toml:"soft_think_tokens"`
	SoftCapTopN     int `toml:"soft_cap_top_n"`
	// MaxThinkBlocks is how many blocks one turn may open; an opening tag past it is text of the answer. With 1
	// phases never go back.
	MaxThinkBlocks int `toml:"max_think_blocks"`

	// EMAAlpha is the weight of the newest probe in EAT's running mean and variance.
	EMAAlpha float64 `toml:"ema_alpha"`
	// EATWarmupProbes is after how many probes EAT may close a block; 0: 4/EMAAlpha, as its authors do.
	EATWarmupProbes int `toml:"eat_warmup_probes"`
	// EATVarianceThreshold closes a block once the EMA variance of the probes is below it, in nats²
	// (bits² × 0.4805). It has no universal value: see docs/eat.md for how to fit it.
	EATVarianceThreshold float64 `toml:"eat_ema_variance_threshold"`
	// EATStalledEntropy: a probe at or above it, in nats, makes the reason stalled instead of converged: the
	// distribution is steady, but no answer stands out. 0: never.
	EATStalledEntropy float64 `toml:"eat_stalled_entropy"`
	// EATProbeIntervalTokens is the least distance of two probes, EATProbeMaxIntervalTokens the distance from which
	// on a line or sentence end does where no blank line comes (0: only blank lines), in think tokens.
	EATProbeIntervalTokens    int `toml:"eat_probe_interval_tokens"`
	EATProbeMaxIntervalTokens int `toml:"eat_probe_max_interval_tokens"`
	// EATSuffix is the text between close tag and answer; "": what the chat template writes there.
	EATSuffix string `toml:"eat_suffix"`

	// RPDIForm is which index closes a block: entropy (the paper's) or indicator (the original program's).
	RPDIForm RPDIForm `toml:"rpdi_form"`
	// RPDIWindow is how many think tokens the local mean of the entropy form covers.
	RPDIWindow int `toml:"rpdi_window"`
	// RPDIThreshold is the ratio above which a boundary counts; RPDIBoundaries in a row close the block.
	RPDIThreshold  float64 `toml:"rpdi_threshold"`
	RPDIBoundaries int     `toml:"rpdi_boundaries"`
	// TransitionEntropyThreshold (nats), RPDIIndicatorAlpha and RPDIIndicatorThreshold are the indicator form's: a
	// token above the first is a transition, the second weighs the newest token in the local rate, the third is
	// compared with local/global.
	TransitionEntropyThreshold float64 `toml:"transition_entropy_threshold"`
	RPDIIndicatorAlpha         float64 `toml:"rpdi_indicator_alpha"`
	RPDIIndicatorThreshold     float64 `toml:"rpdi_indicator_threshold"`

	// ForceGraceTokens is how long a forced close waits for the end of a line or sentence, in think tokens.
	ForceGraceTokens int `toml:"force_grace_tokens"`
	// ForceRetryTokens is after how many tokens a delivered close that was not seen to close is forced again.
	ForceRetryTokens int `toml:"force_retry_tokens"`

	// The scheduler's knobs, checked here and passed on by the daemon. ThinkBatchMultiplier is the policy
	// meridian_static's; OutputTPOTBudgetMs is the inter-token target of an answer that names none, ThinkTPOTBudgetMs
	// the longest a thinking request waits for its next token, both in milliseconds.
	ThinkBatchMultiplier float64 `toml:"think_batch_multiplier"`
	OutputTPOTBudgetMs   float64 `toml:"output_tpot_budget_ms"`
	ThinkTPOTBudgetMs    float64 `toml:"think_tpot_budget_ms"`
}

// DefaultConfig is what holds where nothing is said.
func DefaultConfig() Config {
	return Config{
		ThinkMode: ModeAuto, EarlyExit: ExitOff, EntropyEnabled: true,
		MinThinkTokens: 512, MaxThinkTokens: 32768, SoftCapTopN: 10, MaxThinkBlocks: 1,
		EMAAlpha: 0.1, EATVarianceThreshold: 4.7e-4, EATStalledEntropy: 1,
		EATProbeIntervalTokens: 32, EATProbeMaxIntervalTokens: 256,
		RPDIForm: RPDIEntropy, RPDIWindow: 512, RPDIThreshold: 2, RPDIBoundaries: 2,
		TransitionEntropyThreshold: 2.5, RPDIIndicatorAlpha: 0.05, RPDIIndicatorThreshold: 3,
		ForceGraceTokens: 32, ForceRetryTokens: 16,
		ThinkBatchMultiplier: 2.5, OutputTPOTBudgetMs: 100, ThinkTPOTBudgetMs: 250,
	}
}

// Limits of Config, inclusive.
const (
	maxThinkTokensLimit = 1 << 24
	maxWindow           = 1 << 16
)

// Validate refuses what cannot work. The error names the field as the file spells it, its value and the limit.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"min_think_tokens", c.MinThinkTokens, 0, maxThinkTokensLimit},
		{"max_think_tokens", c.MaxThinkTokens, 0, maxThinkTokensLimit},
		{"soft_think_tokens", c.SoftThinkTokens, 0, maxThinkTokensLimit},
		{"soft_cap_top_n", c.SoftCapTopN, 1, 1 << 20},
		{"max_think_blocks", c.MaxThinkBlocks, 1, 1 << 16},
		{"eat_warmup_probes", c.EATWarmupProbes, 0, 1 << 20},
		{"eat_probe_interval_tokens", c.EATProbeIntervalTokens, 1, 1 << 20},
		{"eat_probe_max_interval_tokens", c.EATProbeMaxIntervalTokens, 0, 1 << 20},
		{"rpdi_window", c.RPDIWindow, 1, maxWindow},
		{"rpdi_boundaries", c.RPDIBoundaries, 1, 1 << 16},
		{"force_grace_tokens", c.ForceGraceTokens, 0, 1 << 16},
		{"force_retry_tokens", c.ForceRetryTokens, 1, 1 << 16},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("meridian.%s is %d; it must be %d…%d", f.name, f.v, f.lo, f.hi)
		}
	}
	huge := math.MaxFloat64
	for _, f := range []struct {
		name      string
		v, lo, hi float64
	}{
		{"ema_alpha", c.EMAAlpha, 1e-4, 1},
		{"eat_ema_variance_threshold", c.EATVarianceThreshold, 0, huge},
		{"eat_stalled_entropy", c.EATStalledEntropy, 0, huge},
		{"rpdi_threshold", c.RPDIThreshold, 1, huge},
		{"transition_entropy_threshold", c.TransitionEntropyThreshold, 0, huge},
		{"rpdi_indicator_alpha", c.RPDIIndicatorAlpha, 1e-4, 1},
		{"rpdi_indicator_threshold", c.RPDIIndicatorThreshold, 1, huge},
		{"think_batch_multiplier", c.ThinkBatchMultiplier, 1, 1000},
		{"output_tpot_budget_ms", c.OutputTPOTBudgetMs, 0.1, 1e6},
		{"think_tpot_budget_ms", c.ThinkTPOTBudgetMs, 0.1, 1e6},
	} {
		if !(f.lo <= f.v && f.v <= f.hi) { // NaN too
			if f.hi == huge {
				return fmt.Errorf("meridian.%s is %v; it must be a number of at least %v", f.name, f.v, f.lo)
			}
			return fmt.Errorf("meridian.%s is %v; it must be a number of %v…%v", f.name, f.v, f.lo, f.hi)
		}
	}
	if c.MaxThinkTokens < c.MinThinkTokens {
		return fmt.Errorf("meridian.max_think_tokens is %d; it must be at least min_think_tokens (%d)", c.MaxThinkTokens, c.MinThinkTokens)
	}
	if m := c.EATProbeMaxIntervalTokens; m != 0 && m < c.EATProbeIntervalTokens {
		return fmt.Errorf("meridian.eat_probe_max_interval_tokens is %d; it must be 0 or at least eat_probe_interval_tokens (%d)", m, c.EATProbeIntervalTokens)
	}
	if len(c.EATSuffix) > maxMarkerBytes {
		return fmt.Errorf("meridian.eat_suffix has %d bytes; it may have up to %d", len(c.EATSuffix), maxMarkerBytes)
	}
	if len(c.Markers.Open)+len(c.Markers.Close) > 0 {
		if err := c.Markers.validate(); err != nil {
			return fmt.Errorf("meridian.markers: %w", err)
		}
	}
	return nil
}
