package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/models"
)

// frontOptions declares the options of a front with its engine processes.
func (c *Config) frontOptions(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Single, "single", false, "serve one model in one process, without a front process and "+
		"engine processes: a crash then ends the server, and the other options of this section have no effect")
	c.Memory = sizeOf("auto")
	fs.Var(&c.Memory, "memory", `memory for all loaded models together (weights, KV cells, host tiers): a size such `+
		`as 24GiB, a percentage of the free memory, or auto (90%, or what the default model needs if that is `+
		`more); the least recently used models are unloaded to stay below it`)
	fs.DurationVar(&c.IdleUnload, "idle-unload", 15*time.Minute, "unload a model that has had no request for this "+
		"long, except pinned ones; 0 = never. If this is not set, the default model stays until another needs its "+
		"memory")
	fs.BoolVar(&c.ServeFound, "serve-found", true, "load any model on this machine (uma-cli models lists them) when a "+
		"request names it; false: only --model and the [models.NAME] tables")
	fs.DurationVar(&c.StepTimeout, "step-timeout", time.Minute, "end and restart an engine process whose decode step "+
		"takes longer; 0 = never")
	fs.BoolVar(&c.Arbiter, "arbiter", true, "loaded models take turns on the devices that they share: the model "+
		"whose answer is due first computes next; false: the operating system divides the processors, and a model "+
		"beside another can miss its ITL target")
	fs.BoolVar(&c.Sandbox, "sandbox", true, "confine engine processes with Landlock and seccomp, as far as the "+
		"kernel supports it: they open only their model and cache files, start no program and use no network")
}

// Front reports whether models are served by engine processes behind a front.
func (c *Config) Front() bool { return !c.Single }

// validateFront checks the options of a front.
func (c *Config) validateFront() error {
	var errs []error
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"idle-unload", c.IdleUnload}, {"step-timeout", c.StepTimeout}} {
		if d.v < 0 {
			errs = append(errs, fmt.Errorf("--%s is %v; it must not be negative", d.name, d.v))
		}
	}
	if c.StepTimeout > 0 && c.StepTimeout < time.Second {
		errs = append(errs, fmt.Errorf("--step-timeout is %v; it must be 1s or more, or 0 for never: a long prompt's "+
			"step takes hundreds of milliseconds", c.StepTimeout))
	}
	if !c.Memory.Auto && c.Memory.Share == 0 && c.Memory.Bytes == 0 {
		errs = append(errs, fmt.Errorf("--memory is %q; it must be more than 0", c.Memory.String()))
	}
	return errors.Join(errs...)
}

// MarshalText returns the text that was set.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.text), nil }

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error { return s.Set(string(text)) }

// ModelLabel returns the name of the model of a configuration without [models.NAME] tables.
func (c *Config) ModelLabel() string {
	switch {
	case c.HFRepo != "":
		return c.HFRepo
	case c.Model == "":
		return "uma-tiny"
	}
	base := filepath.Base(c.Model)
	if name := strings.TrimSuffix(base, filepath.Ext(base)); name != "" &&
		strings.EqualFold(filepath.Ext(base), ".gguf") {
		return name
	}
	return base
}

// Alone returns c without its [models.NAME] tables: the configuration of the engine that serves --model.
func (c *Config) Alone() *Config {
	out := *c
	out.Models = nil
	return &out
}

// ForEngine returns the configuration for an engine process: the model is a file, which may be downloaded first
// (--hf-repo), and the host tier has a fixed size, a part of limit, the memory of all engine processes together. alone:
// the configuration names no other model.
func (c *Config) ForEngine(ctx context.Context, limit int64, alone bool, log *slog.Logger) (*Config, error) {
	out := *c
	if err := out.locateFile(ctx, log); err != nil {
		return nil, err
	}
	out.HFRepo, out.Models, out.Puller, out.MetricsFile = "", nil, nil, ""
	if err := out.CacheRAM.Set(fmt.Sprintf("%db", out.hostTier(limit, alone))); err != nil {
		return nil, err
	}
	return &out, nil
}

// locateFile makes Model the path of a file.
func (c *Config) locateFile(ctx context.Context, log *slog.Logger) (err error) {
	if err := c.Locate(ctx, log); err != nil {
		return err
	}
	switch {
	case c.HFRepo != "":
		c.Model, err = c.download(ctx, log)
	case c.Model == "":
		if c.Model, err = models.Default(); err == nil {
			fmt.Fprintln(logWriter(log), "uma-serve:", models.Notice)
		}
	}
	return err
}

// hostTier returns --cache-ram of an engine process whose Model is a file, in bytes.
func (c *Config) hostTier(limit int64, alone bool) int64 {
	if n, ok := c.CacheRAM.Of(uint64(max(limit, 0))); ok {
		return n
	}
	if alone {
		if n, err := c.modelBytes(); err == nil {
			return max(limit-n, 0) / autoHostTierAlone
		}
	}
	return limit / autoHostTiers
}

// Divisors for --cache-ram auto: each of several engine processes gets --memory / autoHostTiers for its host tier; a
// single one gets the memory that its model leaves / autoHostTierAlone.
const (
	autoHostTiers     = 16
	autoHostTierAlone = 4
)

// processBytes is the memory of an engine process besides weights, KV cells and host tier, in bytes: Go's heap and the
// engine's buffers.
const processBytes = 128 << 20

// Estimate returns the memory in bytes that an engine process takes with this configuration, which ForEngine made:
// weights, their repacked copy, KV cells, host tier and the process itself.
func (c *Config) Estimate() (int64, error) {
	n, err := c.modelBytes()
	return n + c.CacheRAM.Bytes + processBytes, err
}

// modelBytes returns the memory of weights, their repacked copy and KV cells in bytes, the draft model's included.
func (c *Config) modelBytes() (int64, error) {
	info, err := gguf.Inspect(c.Model)
	if err != nil {
		return 0, err
	}
	cells := int64(c.contextTokens(c.Model))
	if cells == 0 {
		cells = info.TrainContext
	}
	n, _, _, err := c.need(&info, cells, c.processor())
	if err != nil {
		return 0, err
	}
	const most = 1 << 60 // a header can claim anything
	if n.Total() > most || c.draftNeed(c.processor()).Total() > most {
		return 0, fmt.Errorf("%s claims sizes that no machine has", c.Model)
	}
	return int64(n.Total() + c.draftNeed(c.processor()).Total()), nil
}

// ForFound returns the configuration of the engine that serves a model of this machine without a table: c without the
// options that are meant for --model. It has no folder for snapshots: each would take as much as --cache-disk.
func (c *Config) ForFound(name, path string) (*Config, error) {
	out, err := c.ForModel(&ModelConfig{Name: name, Model: path, IdleUnload: -1})
	if err == nil {
		out.ChatTemplate, out.CacheDir = "", ""
	}
	return out, err
}

// Given reports whether an option was set, on the command line, in the environment or in the file.
func (c *Config) Given(option string) bool { return c.given(option) }
