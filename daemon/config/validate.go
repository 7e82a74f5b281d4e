package config

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/models/store"
	"github.com/uma-serve/uma-serve/telemetry"
)

// Limits of --tags.
const (
	maxTags     = 32
	maxTagBytes = 64
)

// unquantised are the types of V cells that need no flash attention.
var unquantised = []string{"f32", "f16", "bf16"}

// Validate returns an error for each option out of its range, with its name and range.
func (c *Config) Validate() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	within := func(name string, v, lo, hi int) {
		bad(v >= lo && v <= hi, "--%s is %d; it must be %d…%d", name, v, lo, hi)
	}
	bad(c.CtxSize == AutoContext || c.CtxSize == 0 || c.CtxSize >= minCtxSize && c.CtxSize <= maxContext,
		"--ctx-size is %d; it must be %s", c.CtxSize, contexts)
	bad(c.CtxSize < minCtxSize || c.CtxSize >= c.Parallel, "--ctx-size is %d; it must be at least --parallel (%d): "+
		"each running request needs at least one cell", c.CtxSize, c.Parallel)
	within("parallel", c.Parallel, 1, maxParallel)
	within("batch-size", c.BatchSize, 1, 1<<20)
	within("ubatch-size", c.UBatchSize, 1, 1<<20)
	within("threads", c.Threads, 0, 4*max(runtime.NumCPU(), 16))
	within("gpu-layers", c.GPULayers, AllLayers, maxGPULayers)
	within("n-cpu-moe", c.CPUMoE, -1, maxGPULayers)
	within("max-sessions", c.MaxSessions, 1, 1<<20)
	within("max-queue", c.MaxQueue, 0, 1<<20)
	within("start-target-tokens", c.StartTargetTokens, 1, 1<<20)
	within("max-frame-bytes", c.MaxFrameBytes, 256, maxFrameBytesLimit)
	within("max-prompt-bytes", c.MaxPromptBytes, 1, maxFrameBytesLimit)
	within("max-tokens", c.MaxTokens, 0, 1<<27)
	bad(c.BatchSize >= c.Parallel, "--batch-size is %d; it must be at least --parallel (%d): each running answer "+
		"needs a row", c.BatchSize, c.Parallel)
	bad(c.TickBudgetMs >= 1 && c.TickBudgetMs <= 60_000, "--tick-budget-ms is %g; it must be 1…60000", c.TickBudgetMs)
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"idle-timeout", c.IdleTimeout}, {"shutdown-timeout", c.ShutdownTimeout}} {
		bad(d.v >= 0, "--%s is %v; it must not be negative", d.name, d.v)
	}
	within("models-max", c.ModelsMax, 0, 1<<16)
	for _, name := range c.Alias {
		if _, err := store.ParseName(name); err != nil {
			errs = append(errs, fmt.Errorf("--alias: %w", err))
		}
	}
	bad(len(c.Tags) <= maxTags && !slices.ContainsFunc(c.Tags, func(t string) bool { return len(t) > maxTagBytes }),
		"--tags has %d words; it must be up to %d, each of up to %d bytes", len(c.Tags), maxTags, maxTagBytes)
	if _, err := c.LoRAs(); err != nil {
		errs = append(errs, err)
	}
	oneOf := func(name, v string, allowed ...string) {
		bad(slices.Contains(allowed, v), "--%s is %q; it must be %s", name, v, strings.Join(allowed, " or "))
	}
	if c.HFRepo != "" {
		if _, err := c.hubName(); err != nil {
			errs = append(errs, fmt.Errorf("--hf-repo: %w", err))
		}
	}
	oneOf("flash-attn", c.FlashAttn, Choices["flash-attn"]...)
	oneOf("kernels", c.Kernels, Choices["kernels"]...)
	oneOf("power", c.Power, Choices["power"]...)
	oneOf("cache-type-k", c.CacheTypeK, Choices["cache-type-k"]...)
	oneOf("cache-type-v", c.CacheTypeV, Choices["cache-type-v"]...)
	bad(c.FlashAttn != "off" || slices.Contains(unquantised, c.CacheTypeV), "--cache-type-v is %q; with --flash-attn "+
		"off it must be %s: llama.cpp supports a quantised V cache only with flash attention", c.CacheTypeV,
		strings.Join(unquantised, " or "))
	oneOf("policy", c.Policy, Choices["policy"]...)
	bad(c.Limits.BackgroundQueue == 0 || c.Policy != "stock" && c.Policy != "meridian_static", "--limits has "+
		"background_queue, which --policy %s could not keep: it knows no classes; leave it out", c.Policy)
	_, errSpeculate := c.speculation()
	_, errDrafts := c.drafts()
	_, errRates := c.SyntheticRates()
	errs = append(errs, errSpeculate, errDrafts, errRates)
	if c.ChatTemplate != "" {
		text, _, err := loadTemplate(c.ChatTemplate)
		var t *template.Template
		if err == nil {
			t, err = c.CompileTemplate(text)
		}
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("--chat-template is %q; %w", c.ChatTemplate, err))
		case t.Deaf():
			c.Warnings = append(c.Warnings, fmt.Sprintf("--chat-template is %.60q: it leaves out what the user says, "+
				"so that every conversation gets an answer to the same text", c.ChatTemplate))
		}
	}
	oneOf("share-prefixes", c.SharePrefixes, Choices["share-prefixes"]...)
	oneOf("think-evict", c.ThinkEvict, Choices["think-evict"]...)
	if c.ThinkEvict == core.OffloadThoughts {
		bad(!c.NoPrefixCache, "--think-evict is offload and --no-prefix-cache is set; nothing is stored then: remove "+
			"one of them")
		ram, fixed := c.CacheRAM.Of(1 << 30)
		bad(ram > 0 || !fixed, "--think-evict is offload and --cache-ram is 0; thoughts have no place then: set "+
			"--cache-ram above 0")
	}
	if c.Pooling != "" {
		oneOf("pooling", c.Pooling, Choices["pooling"]...)
	}
	if _, _, err := c.ShorterEmbeddings(); err != nil {
		errs = append(errs, err)
	}
	within("offload-threshold-blocks", c.OffloadThresholdBlocks, 1, 1<<16)
	within("think-budget", c.ThinkBudget, -1, 1<<24)
	if c.Telemetry != "" {
		if _, err := telemetry.ParseEndpoint(c.Telemetry); err != nil {
			errs = append(errs, fmt.Errorf("--telemetry-endpoint: %w", err))
		}
	}
	if err := c.CacheDisk.absolute(); err != nil {
		errs = append(errs, fmt.Errorf("--cache-disk is %q; %w", c.CacheDisk.String(), err))
	}
	bad(c.CacheDir == "" || c.CacheDisk.Bytes != 0, "--cache-dir is %q and --cache-disk is 0; set --cache-disk above "+
		"0, or remove --cache-dir", c.CacheDir)
	// Package meridian checks these two as well, but under the names of its TOML keys.
	itl, floor := c.Meridian.ITLTargetMs, c.Meridian.ThinkFloorMs
	known := itl >= 1 && itl <= 60_000 && floor >= 1 && floor <= 60_000
	bad(itl >= 1 && itl <= 60_000, "--itl-target-ms is %g; it must be 1…60000", itl)
	bad(floor >= 1 && floor <= 60_000, "--think-floor-ms is %g; it must be 1…60000", floor)
	if known {
		if err := c.Meridian.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	oneOf("log-format", c.LogFormat, Choices["log-format"]...)
	if _, err := c.logLevel(); err != nil {
		errs = append(errs, err)
	}
	if _, err := ParseMode("socket-mode", c.SocketMode); err != nil {
		errs = append(errs, err)
	}
	if c.KVEvents != "" {
		if _, err := c.KVEventsAddress(); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.validateListen()...)
	errs = append(errs, c.validateFront())
	return errors.Join(errs...)
}
