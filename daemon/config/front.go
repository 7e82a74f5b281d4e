package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/model/template"
	"github.com/uma-serve/uma-serve/models/store"
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
	fs.BoolVar(&c.Autoload, "autoload", true, "load a model when a request needs it; false: only the default model, "+
		"pinned ones, and those that POST /models/load names")
	fs.IntVar(&c.ModelsMax, "models-max", 0, "maximum `models` that are loaded at a time, beside the limit of "+
		"--memory; 0 = as many as fit")
	fs.BoolVar(&c.AllowModelChanges, "allow-model-changes", false, "let every client load, unload, download, "+
		"make and delete models (POST /models/load, POST and DELETE /models, /api/pull, keep_alive and others), not "+
		"only root and the server's user")
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
	if c.IdleUnload < 0 {
		errs = append(errs, fmt.Errorf("--idle-unload is %v; it must not be negative", c.IdleUnload))
	}
	if !c.Memory.Auto && c.Memory.Share == 0 && c.Memory.Bytes == 0 {
		errs = append(errs, fmt.Errorf("--memory is %q; it must be more than 0", c.Memory.String()))
	}
	return errors.Join(errs...)
}

// MoreNames returns the names of the model of --model beside ModelLabel: those of --alias, and its own.
func (c *Config) MoreNames() []string {
	if len(c.Alias) == 0 {
		return nil
	}
	plain := *c
	plain.Alias = nil
	names := c.Names()
	return slices.Compact(append(names[1:len(names):len(names)], plain.ModelLabel()))
}

// Names returns the names of --alias as llama-server orders them: alphabetically, so that the same command line gives
// the model the same name there and here.
func (c *Config) Names() []string {
	names := slices.Clone(c.Alias)
	slices.Sort(names)
	return slices.Compact(names)
}

// ModelLabel returns the name of the model of a configuration without [models.NAME] tables.
func (c *Config) ModelLabel() string {
	switch {
	case len(c.Alias) > 0:
		return c.Names()[0]
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
	out.Models, out.MCP = nil, nil
	return &out
}

// ForEngine returns the configuration for an engine process: the model is a file, which may be downloaded first
// (--hf-repo). The front sets its share of the memory with WithMemory.
func (c *Config) ForEngine(ctx context.Context, log *slog.Logger) (*Config, error) {
	out := *c
	if err := out.locateFile(ctx, log); err != nil {
		return nil, err
	}
	out.HFRepo, out.Models, out.Puller, out.MCP = "", nil, nil, nil // they may hold secrets, and are the front's
	return &out, nil
}

// WithMemory returns the configuration of an engine process with a host tier of so many bytes, 0 = none, and an
// automatic context of at most place.Tokens. Its layers are where place has them, if the memory of devices is known.
func (c *Config) WithMemory(hostTier int64, place *Place) *Config {
	out := *c
	out.CacheRAM = sizeOf(fmt.Sprintf("%db", hostTier))
	out.MaxContext = place.Tokens
	if len(c.Rooms()) > 0 {
		out.Place = place
	}
	return &out
}

// locateFile makes Model the path of a file.
func (c *Config) locateFile(ctx context.Context, log *slog.Logger) (err error) {
	if err := c.Locate(ctx, log); err != nil {
		return err
	}
	c.Model, err = c.ModelFile(ctx, log)
	return err
}

// HostTiers returns the most bytes for the host tiers of all models together, which --cache-ram says, where limit is
// what --memory stands for.
func (c *Config) HostTiers(limit int64) int64 {
	if n, ok := c.CacheRAM.Of(uint64(max(limit, 0))); ok {
		return n
	}
	return limit / autoHostTiers
}

// autoHostTiers is the divisor of --memory for --cache-ram auto.
const autoHostTiers = 4

// ForFound returns the configuration of the engine that serves a model of this machine without a table: c without the
// options that are meant for --model. It has no folder for snapshots: each would take as much as --cache-disk.
func (c *Config) ForFound(name, path string) (*Config, error) {
	out, err := c.ForModel(&Model{Name: name, Model: path, IdleUnload: -1})
	if err == nil {
		out.ChatTemplate, out.CacheDir = "", ""
	}
	return out, err
}

// ForRecipe returns the configuration of the engine that serves a model that was made of the one at path: as ForFound
// has it, with the recipe's options where no higher layer than the file sets them.
func (c *Config) ForRecipe(r *store.Recipe, path string) (*Config, error) {
	if r.Plain() {
		return c.ForFound(r.Name, path)
	}
	if r.Template != "" {
		if _, err := template.Compile(r.Template); err != nil {
			return nil, fmt.Errorf("model %s: its template: %w", r.Name, err)
		}
	}
	for name := range r.Options {
		if !slices.Contains(modelOptions, name) {
			return nil, fmt.Errorf("model %s: its recipe sets %q, which is no option of a model", r.Name, name)
		}
	}
	out, err := c.ForModel(&Model{Name: r.Name, Model: path, IdleUnload: -1, Options: r.Options})
	if err == nil {
		out.ChatTemplate, out.CacheDir, out.Recipe = "", "", r
	}
	return out, err
}

// Encode returns c as JSON for an engine process, with the layer that set each option.
func (c *Config) Encode() (options json.RawMessage, sources map[string]string, err error) {
	if options, err = json.Marshal(c); err != nil {
		return nil, nil, fmt.Errorf("pass on the configuration: %w", err)
	}
	return options, c.layers.source, nil
}

// Decode is the inverse of Encode.
func Decode(options json.RawMessage, sources map[string]string) (*Config, error) {
	_, c, _ := NewFlagSet()
	if err := json.Unmarshal(options, c); err != nil {
		return nil, fmt.Errorf("read the configuration of the front: %w", err)
	}
	c.layers.source = sources
	return c, nil
}
