package config

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/internal/host/sockpath"
	"github.com/uma-serve/uma-serve/internal/logq"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Values that the daemon takes and that are no options: parsed from the text of one, or computed from several.

// SocketPath returns the path of the Unix socket, unless systemd passes a socket.
func (c *Config) SocketPath() string {
	if c.Socket != "" {
		return c.Socket
	}
	return sockpath.Default()
}

// Privileged reports whether a peer is an operator, who may see all users' requests and prefixes: root or the server's
// user.
func (c *Config) Privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }

// Logger returns a log to w in --log-format and --log-level. Logging never waits for w (package logq). Close the log
// before the process ends, or its last lines are lost.
func (c *Config) Logger(w io.Writer) (*logq.Log, *slog.Logger) {
	level, _ := c.logLevel() // validated by Load
	opts := &slog.HandlerOptions{Level: level}
	return logq.New(w, func(w io.Writer) slog.Handler {
		if c.LogFormat == "json" {
			return slog.NewJSONHandler(w, opts)
		}
		return slog.NewTextHandler(w, opts)
	}, logq.Options{})
}

func (c *Config) logLevel() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, fmt.Errorf("--log-level is %q; it must be debug, info, warn or error", c.LogLevel)
	}
	return l, nil
}

// PolicyOptions returns the scheduling options that the configured policy uses.
func (c *Config) PolicyOptions() []reports.PolicyOption {
	target := policyOption("itl-target-ms", c.Meridian.ITLTargetMs)
	batch := policyOption("batch-size", float64(c.BatchSize))
	start := policyOption("start-target-tokens", float64(c.StartTargetTokens))
	multiplier := policyOption("think_batch_multiplier", c.Meridian.ThinkBatchMultiplier)
	switch c.Policy {
	case "meridian":
		floor := policyOption("think-floor-ms", c.Meridian.ThinkFloorMs)
		return []reports.PolicyOption{target, floor, multiplier, start}
	case "uma":
		return []reports.PolicyOption{policyOption("tick-budget-ms", c.TickBudgetMs), start}
	case "meridian_static":
		return []reports.PolicyOption{multiplier, batch}
	}
	return []reports.PolicyOption{batch}
}

func policyOption(name string, value float64) reports.PolicyOption {
	return reports.PolicyOption{Name: name, Value: value}
}

// SpeculationLimit returns the maximum number of tokens of an answer that a step verifies as a draft; 0 = no
// speculative decoding.
func (c *Config) SpeculationLimit() int {
	if c.NoDrafts() != "" {
		return 0
	}
	n, _ := c.speculation() // validated by Load
	return n
}

// speculation parses --speculate.
func (c *Config) speculation() (limit int, err error) {
	switch c.Speculate {
	case speculateAuto:
		return core.MaxGuess, nil
	case speculateOff, "0": // 0 is llama-server's "off"
		return 0, nil
	}
	n, err := strconv.Atoi(c.Speculate)
	if err != nil || n < 1 || n > core.MaxGuess {
		return 0, fmt.Errorf("--speculate is %q; it must be %s, %s or a number of tokens, 1…%d", c.Speculate,
			speculateAuto, speculateOff, core.MaxGuess)
	}
	return n, nil
}

// ShorterEmbeddings returns the numbers of --embedding-sizes. all: clients may shorten embeddings to any size.
func (c *Config) ShorterEmbeddings() (sizes []int, all bool, err error) {
	if c.EmbeddingSizes == "" || c.EmbeddingSizes == "any" {
		return nil, c.EmbeddingSizes == "any", nil
	}
	for word := range strings.SplitSeq(c.EmbeddingSizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 1 || n > wire.MaxDimensions {
			return nil, false,
				fmt.Errorf(`--embedding-sizes is %q; it must be numbers of 1…%d with commas between them, or "any"`,
					c.EmbeddingSizes, wire.MaxDimensions)
		}
		sizes = append(sizes, n)
	}
	return sizes, false, nil
}

// ShutdownShares divides --shutdown-timeout between running requests, writing the cache to durable stores if there are
// any, and a rest for sending.
func (c *Config) ShutdownShares(durable bool) (requests, stores time.Duration) {
	sending := min(c.ShutdownTimeout/10, 500*time.Millisecond)
	if durable {
		stores = min(c.ShutdownTimeout/4, 5*time.Second)
	}
	return c.ShutdownTimeout - sending - stores, stores
}
