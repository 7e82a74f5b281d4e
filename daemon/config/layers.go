package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/cli/configfile"
)

// The layers of the configuration, lowest first. The highest that names an option sets it.
const (
	fromDefault     = "default"
	fromFile        = "file"
	fromEnvironment = "environment"
	fromFlag        = "flag"
)

// envPrefix begins the environment variable of each option: --ctx-size is UMA_CTX_SIZE.
const envPrefix = "UMA_"

// otherVariables are the UMA_ variables that are not options of the daemon, and their readers.
var otherVariables = []string{
	"UMA_DEBUG",       // here
	"UMA_BACKEND_DIR", // runtime/llama
	"UMA_HOST",        // uma-cli
	"UMA_NOHISTORY",   // uma-cli
	"UMA_URL",         // set by uma-cli proxy
}

// envName returns the environment variable of an option.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// layers records which layer set each option. It uses no library such as viper or koanf: a flag parses, checks and
// prints its value, so that a layer is one loop over the flags and an error names the layer.
type layers struct {
	options *pflag.FlagSet    // every option, bound to the Config
	source  map[string]string // by option or "meridian.KEY"; absent = fromDefault
}

// Given reports whether an option, or a key of [meridian] as "meridian.KEY", was set: on the command line, in the
// environment or in the file.
func (c *Config) Given(option string) bool { return c.layers.source[option] != "" }

// Load merges the layers into c (defaults < file < environment < flags) and validates the result. Call it after parsing
// the command line, with the flag set of NewFlagSet or one that includes its flags. environ is os.Environ().
func (c *Config) Load(environ []string) error {
	env := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(k, envPrefix) {
			env[k] = v
		}
	}
	c.Warnings = append(c.Warnings, unknownVariables(c.layers.options, env)...)

	// Not FlagSet.Visit: the flag set that parsed the command line may be another one, which shares only the flags.
	c.layers.source = map[string]string{}
	c.layers.options.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			c.layers.source[f.Name] = fromFlag
		}
	})
	var errs []error
	c.layers.options.VisitAll(func(f *pflag.Flag) {
		v, ok := env[envName(f.Name)]
		if !ok || c.layers.source[f.Name] != "" {
			return
		}
		c.layers.source[f.Name] = fromEnvironment
		if err := f.Value.Set(v); err != nil {
			errs = append(errs, fmt.Errorf("environment %s=%q: %w", envName(f.Name), v, clierr.Value(f, err)))
		}
	})
	if v := env["UMA_DEBUG"]; v != "" && v != "0" && c.layers.source["log-level"] == "" {
		c.layers.source["log-level"] = fromEnvironment
		c.LogLevel = "debug"
	}
	m := c.layers.options.Lookup("meridian")
	for _, key := range m.Value.(*meridianFlag).keys {
		c.layers.source["meridian."+key] = c.layers.source[m.Name]
	}
	if c.layers.source["config"] == "" {
		c.ConfigFile = configfile.Find(environ)
	}
	if c.ConfigFile != "" {
		errs = append(errs, c.loadFile(c.ConfigFile))
	}
	if c.ModelsPreset != "" {
		errs = append(errs, c.loadPreset(c.ModelsPreset))
	}
	for _, t := range c.told {
		c.Warnings = append(c.Warnings, fmt.Sprintf("llama-server's option %s is left out: %s", t[0], t[1]))
	}
	for _, r := range c.refused {
		errs = append(errs, fmt.Errorf("llama-server's option %s: %s", r[0], r[1]))
	}
	if c.Threads > runtime.NumCPU() {
		c.Warnings = append(c.Warnings, fmt.Sprintf("--threads is %d, but this process may use only %d processors: "+
			"compute threads spin while they wait for each other, so each step takes many times as long", c.Threads,
			runtime.NumCPU()))
	}
	c.applyThinkBudget()
	errs = append(errs, c.settleModel())
	c.settleProjector()
	errs = append(errs, c.Validate())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.checkModels()
}

// unknownVariables returns a warning for each UMA_ variable that no program of this project reads.
func unknownVariables(options *pflag.FlagSet, env map[string]string) (warnings []string) {
	known := slices.Clone(otherVariables)
	options.VisitAll(func(f *pflag.Flag) { known = append(known, envName(f.Name)) })
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if slices.Contains(known, name) {
			continue
		}
		option := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
		if text := goneText(option); text != "" {
			warnings = append(warnings, fmt.Sprintf("the environment variable %s is ignored: %s", name, text))
			continue
		}
		text := fmt.Sprintf("the environment variable %.80s is unknown and ignored", name)
		if near := clierr.Nearest(name, known); near != "" {
			text += "; did you mean " + near + "?"
		}
		warnings = append(warnings, text)
	}
	return warnings
}

// loadFile sets the options of a TOML file that no higher layer has set. Keys are option names, with - or _.
func (c *Config) loadFile(path string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("config %s: "+format, append([]any{path}, args...)...)
	}
	st, err := os.Stat(path)
	if err == nil && !st.Mode().IsRegular() {
		return fail("it is %s, not a file", clierr.Kind(st.Mode())) // opening a FIFO would block
	}
	if err == nil && st.Size() > maxConfigBytes {
		return fail("it has %d bytes; the maximum is %d", st.Size(), maxConfigBytes)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		hint := "--config names this file"
		if c.layers.source["config"] == "" {
			hint = `--config "" starts without a file`
		}
		return fmt.Errorf("config %w; %s", clierr.File(path, err), hint)
	}
	var doc map[string]any
	if err := toml.Unmarshal(b, &doc); err != nil {
		var de *toml.DecodeError
		if errors.As(err, &de) {
			row, col := de.Position()
			return fmt.Errorf("config %s, line %d, column %d: %s", path, row, col,
				strings.TrimPrefix(err.Error(), "toml: "))
		}
		return fail("%w", err)
	}
	var errs []error
	var tables map[string]any // [meridian]
	var models map[string]any // [models]
	seen := map[string]string{}
	if table, ok := doc["telemetry"].(map[string]any); ok { // its keys are the options that begin with its name
		delete(doc, "telemetry")
		for key, v := range table {
			if _, twice := doc["telemetry_"+key]; twice {
				errs = append(errs, fail("key %q and key %q of [telemetry] are the same option; keep one",
					"telemetry_"+key,
					key))
			}
			doc["telemetry_"+key] = v
		}
	}
	c.dropGone("", doc, optionName)
	for _, key := range slices.Sorted(maps.Keys(doc)) {
		v := doc[key]
		name := optionName(key)
		if table, ok := v.(map[string]any); ok && name == "meridian" {
			tables = table
			continue
		}
		if table, ok := v.(map[string]any); ok && name == "models" {
			models = table
			continue
		}
		if table, ok := v.(map[string]any); ok && name == "mcp" {
			if err := c.loadMCP(table); err != nil {
				errs = append(errs, fail("%w", err))
			}
			continue
		}
		f := c.layers.options.Lookup(name)
		if f == nil || name == "config" {
			errs = append(errs, fail("unknown key %q%s", key, didYouMean(name, clierr.FlagNames(c.layers.options))))
			continue
		}
		if first, twice := seen[name]; twice {
			errs = append(errs, fail("key %q and key %q are the same option; keep one", first, key))
			continue
		}
		seen[name] = key
		if c.layers.source[name] != "" {
			continue
		}
		c.layers.source[name] = fromFile
		if err := setScalar(f, v); err != nil {
			errs = append(errs, fail("key %q %w", key, err))
		}
	}
	if tables != nil {
		if err := c.loadMeridian(tables, seen); err != nil {
			errs = append(errs, fail("%w", err))
		}
	}
	if err := c.loadModels(models, b); err != nil {
		errs = append(errs, fail("%w", err))
	}
	return errors.Join(errs...)
}

// optionName returns the option of a key of the file.
func optionName(key string) string { return strings.ReplaceAll(key, "_", "-") }

// maxConfigBytes is the maximum size of a configuration file, far above that of all options.
const maxConfigBytes = 1 << 20

// setScalar sets an option to a value of a TOML document.
func setScalar(f *pflag.Flag, v any) error {
	switch v := v.(type) {
	case string, int64, float64, bool:
	case []any:
		if f.Value.Type() == "list" {
			return setList(f, v)
		}
		return errors.New("must be a single value, not a list")
	default:
		return errors.New("must be a single value, not a table or a date")
	}
	if err := f.Value.Set(fmt.Sprint(v)); err != nil {
		return fmt.Errorf("is %v: %w", v, clierr.Value(f, err))
	}
	return nil
}
