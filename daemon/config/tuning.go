package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/meridian/blocks"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/sched"
)

// Tuning holds the numbers of the daemon that are no options: in no measured case was another value better. Tests set
// them.
type Tuning struct {
	// FixedThreads keeps the number of compute threads while other processes occupy processors. Off: docs/benchmarks.md
	// has the answers beside a busy process, with and without.
	FixedThreads bool
	// GuardMs is policy uma's: prompts wait while an answer has waited so long for its token, in ms.
	GuardMs float64
	// KVBlockTokens is the number of cells in a block of the KV accounting. It decides what is reported, not what is
	// cached.
	KVBlockTokens int
	// DraftCtxSize is the KV cache of the draft model, in tokens; at most --ctx-size and its training context.
	DraftCtxSize int

	// HeaderTimeout and BodyTimeout limit how long an HTTP header, and a body, a frame or a line may take from its
	// first byte. A body of 1 MiB takes 10 s at 1 Mbit/s.
	HeaderTimeout time.Duration
	BodyTimeout   time.Duration
	// StallTimeout ends connections whose client reads nothing for so long; 0 = never. A terminal that a person has
	// stopped with ^S is read again within it, mostly.
	StallTimeout time.Duration
	// StepTimeout ends an engine process whose step takes longer, on a device five times as long; 0 = never. Steps are
	// planned to take at most 1.5 s.
	StepTimeout time.Duration

	// TelemetryInterval is the time between two exports of metrics, that of Prometheus's scrapes in contrib.
	TelemetryInterval time.Duration
	// TelemetrySample is the share of requests that are traced, unless their client decides. A collector can drop more.
	TelemetrySample float64
}

// DefaultTuning returns the values of a daemon.
func DefaultTuning() Tuning {
	return Tuning{
		GuardMs:       float64(sched.DefaultGuard.Milliseconds()),
		KVBlockTokens: blocks.DefaultBlockCells, DraftCtxSize: gguf.DraftContext,
		HeaderTimeout: 10 * time.Second, BodyTimeout: 30 * time.Second, StallTimeout: 2 * time.Minute,
		StepTimeout:       time.Minute,
		TelemetryInterval: 10 * time.Second, TelemetrySample: 1,
	}
}

// gone has a sentence for each option and key of [meridian] of earlier versions.
var gone = map[string]string{
	"fixed-threads":      "the number of compute threads always adapts to other processes; --threads limits it",
	"latency-guard-ms":   "it is always 100 ms, for policy uma",
	"kv-block-tokens":    "a block of the KV accounting always has 16 tokens",
	"draft-ctx-size":     "the draft model always has 8192 tokens, or --ctx-size if that is less",
	"header-timeout":     "it is always 10s",
	"body-timeout":       "it is always 30s",
	"stall-timeout":      "it is always 2m",
	"step-timeout":       "it is always 1m, on a device 5m",
	"telemetry-interval": "it is always 10s",
	"telemetry-sample":   "all requests are traced; drop traces in the collector",
	"threads-batch":      "prompts have as many compute threads as answers; --threads limits both",
	"start-budget":       "a step with prompt work has at most 64 tokens until larger ones were measured",
	"max-background":     "background requests are limited by --parallel alone, and make way for others",
	"while-loading":      "requests always wait for the model, up to --max-queue of them",
	"progress":           "the progress of a load is drawn where stderr is a terminal",
	"metrics-file":       "SIGUSR1 writes the metrics to the log",
	"fabric-ttl":         "write it into the URL of --fabric: valkey://host?ttl=24h",

	"fabric_ttl":          "write it into the URL of the fabric: valkey://host?ttl=24h",
	"kv_block_tokens":     "a block of the KV accounting always has 16 tokens",
	"soft_think_tokens":   "requests name it: think.soft_budget_tokens",
	"soft_cap_top_n":      "it is always 10",
	"max_think_blocks":    "it is always 1",
	"eat_stalled_entropy": "it is always 1 nat",
	"eat_suffix":          "it is always the chat template's",
	"force_retry_tokens":  "it is always 16",
}

// goneText returns what an error or warning says of an option or key of an earlier version, "" for other names.
func goneText(name string) string {
	why, ok := gone[strings.TrimPrefix(name, "meridian.")]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s is no option any more: %s", name, why)
}

// Gone returns an error that says what replaces the option which a command line names, nil if err is about another one.
func Gone(err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && !strings.Contains(unknown.GetSpecifiedName(), "_") {
		if text := goneText(unknown.GetSpecifiedName()); text != "" {
			return errors.New("--" + text)
		}
	}
	return nil
}

// dropGone takes the options of earlier versions out of a table of the file, and warns of each: an old file starts.
func (c *Config) dropGone(where string, table map[string]any, option func(key string) string) {
	var names []string
	for key := range table {
		if gone[option(key)] != "" {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	for _, key := range names {
		delete(table, key)
		c.Warnings = append(c.Warnings, fmt.Sprintf("config %s: key %q is ignored: %s", c.ConfigFile, where+key,
			goneText(option(key))))
	}
}
