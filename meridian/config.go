package meridian

import (
	"fmt"
	"math"
)

// Config is the [meridian] table of the configuration file. DefaultConfig has a default for every field, so a file
// names only the fields that it changes.
type Config struct {
	// Markers open and close the model's thinking. Empty lists: detect them from the vocabulary (Detect).
	Markers Markers `toml:"markers"`

	// ThinkMode and EarlyExit apply to requests that do not set their own.
	ThinkMode Mode      `toml:"think_mode"`
	EarlyExit EarlyExit `toml:"early_exit"`

	// WatchSignals are signals that are also measured, and reported, where EarlyExit does not let them end a thought.
	WatchSignals EarlyExit `toml:"watch_signals"`

	// EntropyEnabled false turns all signals off: only hard_cap and user close a block.
	EntropyEnabled bool `toml:"entropy_enabled"`

	// MinThinkTokens is the number of think tokens before which no signal (EAT, RPDI) closes a block.
	MinThinkTokens int `toml:"min_think_tokens"`
	// MaxThinkTokens is the hard cap of a turn, over all its blocks. A request may lower it but not raise it.
	MaxThinkTokens int `toml:"max_think_tokens"`
	// SoftThinkTokens is the soft cap of requests that name none. Past it, the block closes as soon as the close tag is
	// among the SoftCapTopN most probable tokens. 0: none.
	SoftThinkTokens int `toml:"soft_think_tokens"`
	SoftCapTopN     int `toml:"soft_cap_top_n"`
	// MaxThinkBlocks is the number of blocks that one turn may open. An opening tag past it is text of the answer.
	MaxThinkBlocks int `toml:"max_think_blocks"`

	// EMAAlpha is the weight of the newest probe in EAT's running mean and variance.
	EMAAlpha float64 `toml:"ema_alpha"`
	// EATWarmupProbes is the number of probes before which EAT closes no block; 0: 4/EMAAlpha, as in the paper.
	EATWarmupProbes int `toml:"eat_warmup_probes"`
	// EATVarianceThreshold closes a block once the EMA variance of the probes is below it, in nats² (1 bit² =
	// 0.4805 nats²). It has no universal value; docs/eat.md says how to fit it.
	EATVarianceThreshold float64 `toml:"eat_ema_variance_threshold"`
	// EATStalledEntropy is the entropy, in nats, from which on EAT closes a block as stalled instead of converged: the
	// distribution is steady but no answer stands out. 0: never.
	EATStalledEntropy float64 `toml:"eat_stalled_entropy"`
	// EATProbeIntervalTokens is the shortest distance between two probes, in think tokens. A probe waits for a blank
	// line; from EATProbeMaxIntervalTokens on the end of a line or sentence suffices (0: only blank lines).
	EATProbeIntervalTokens    int `toml:"eat_probe_interval_tokens"`
	EATProbeMaxIntervalTokens int `toml:"eat_probe_max_interval_tokens"`
	// EATSuffix is the text between close tag and answer in a probe; "": the chat template's.
	EATSuffix string `toml:"eat_suffix"`

	// RPDIForm selects the index that closes a block: entropy (the paper's) or indicator (meridian-core's).
	RPDIForm RPDIForm `toml:"rpdi_form"`
	// RPDIWindow is the number of think tokens in the local mean of the entropy form.
	RPDIWindow int `toml:"rpdi_window"`
	// RPDIThreshold is the ratio above which a boundary counts; RPDIBoundaries such boundaries in a row close the
	// block.
	RPDIThreshold  float64 `toml:"rpdi_threshold"`
	RPDIBoundaries int     `toml:"rpdi_boundaries"`
	// The indicator form: a token with an entropy above TransitionEntropyThreshold (nats) is a transition,
	// RPDIIndicatorAlpha is the weight of the newest token in the local transition rate, and a boundary counts when
	// local/global is above RPDIIndicatorThreshold.
	TransitionEntropyThreshold float64 `toml:"transition_entropy_threshold"`
	RPDIIndicatorAlpha         float64 `toml:"rpdi_indicator_alpha"`
	RPDIIndicatorThreshold     float64 `toml:"rpdi_indicator_threshold"`

	// ForceGraceTokens is the limit, in think tokens, on the wait of a pending close for the end of a line or sentence.
	ForceGraceTokens int `toml:"force_grace_tokens"`
	// ForceAtBlankLine has a close that a signal decided wait for a blank line: for models that conclude at the end of
	// a paragraph, and do not answer well from the middle of one.
	ForceAtBlankLine bool `toml:"force_at_blank_line"`
	// ForceRetryTokens is the number of think tokens after which a forced close that took no effect is forced again.
	ForceRetryTokens int `toml:"force_retry_tokens"`

	// Parameters of the scheduler, checked here and passed on by the daemon.
	//
	// ThinkBatchMultiplier is the number of thinking requests that get a token in a step for each answer that gets one:
	// always under policy meridian_static, and under policy meridian until its cost model has learned. ITLTargetMs
	// (--itl-target-ms) is the longest inter-token latency of an answer that names no target, and ThinkFloorMs
	// (--think-floor-ms) the longest time a thinking request waits for its next token, both in ms.
	ThinkBatchMultiplier float64 `toml:"think_batch_multiplier"`
	ITLTargetMs          float64 `toml:"output_tpot_budget_ms"`
	ThinkFloorMs         float64 `toml:"think_tpot_budget_ms"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		ThinkMode: ModeAuto, EarlyExit: ExitOff, EntropyEnabled: true,
		MinThinkTokens: 512, MaxThinkTokens: 32768, SoftCapTopN: 10, MaxThinkBlocks: 1,
		EMAAlpha: 0.1, EATVarianceThreshold: 4.7e-4, EATStalledEntropy: 1,
		EATProbeIntervalTokens: 32, EATProbeMaxIntervalTokens: 256,
		RPDIForm: RPDIEntropy, RPDIWindow: 512, RPDIThreshold: 2, RPDIBoundaries: 2,
		TransitionEntropyThreshold: 2.5, RPDIIndicatorAlpha: 0.05, RPDIIndicatorThreshold: 3,
		ForceGraceTokens: 32, ForceRetryTokens: 16,
		ThinkBatchMultiplier: 2.5, ITLTargetMs: 100, ThinkFloorMs: 250,
	}
}

// Limits of Config, inclusive.
const (
	maxThinkTokensLimit = 1 << 24
	maxWindow           = 1 << 16
)

// Validate checks all fields. The error names the field as the file spells it, its value and the limit.
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
		{"output_tpot_budget_ms", c.ITLTargetMs, 0.1, 1e6},
		{"think_tpot_budget_ms", c.ThinkFloorMs, 0.1, 1e6},
	} {
		if !(f.lo <= f.v && f.v <= f.hi) { // NaN too
			if f.hi == huge {
				return fmt.Errorf("meridian.%s is %v; it must be a number of at least %v", f.name, f.v, f.lo)
			}
			return fmt.Errorf("meridian.%s is %v; it must be a number of %v…%v", f.name, f.v, f.lo, f.hi)
		}
	}
	if c.MaxThinkTokens < c.MinThinkTokens {
		return fmt.Errorf("meridian.max_think_tokens is %d; it must be at least min_think_tokens (%d)",
			c.MaxThinkTokens, c.MinThinkTokens)
	}
	if m := c.EATProbeMaxIntervalTokens; m != 0 && m < c.EATProbeIntervalTokens {
		return fmt.Errorf("meridian.eat_probe_max_interval_tokens is %d; it must be 0 or at least "+
			"eat_probe_interval_tokens (%d)", m, c.EATProbeIntervalTokens)
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
