package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/models/store"
)

// Model is a table [models.NAME] of the configuration file: a model that is served under a name of the operator's
// choice, with options for it alone.
type Model struct {
	Name    string   // of the table
	Model   string   // file or name, as --model takes it
	Aliases []string // further names
	Pinned  bool     // it is never unloaded
	// IdleUnload is the time without a request after which the model is unloaded: 0 = never, < 0 = as for the models
	// without a table.
	IdleUnload time.Duration
	// Options are the texts of options, by name, that hold for this model: some of modelOptions.
	Options map[string]string

	Preset bool // it is of the file of --models-preset, not of the configuration file
	// Doubled: its file, if that has a name without the table, is listed under that name, too, as llama-server lists
	// those of presets.
	Doubled bool
}

// modelOptions are the options that a [models.NAME] table may set: those that its engine is opened with. The other ones
// belong to the daemon.
var modelOptions = []string{
	"ctx-size", "request-ctx-size", "chat-template", "parallel", "batch-size", "ubatch-size", "threads",
	"power", "gpu-layers", "n-cpu-moe", "flash-attn", "cache-type-k", "cache-type-v", "no-kv-offload", "mlock",
	"no-mmap", "no-repack", "seed", "max-tokens", "mmproj",
	"policy", "itl-target-ms", "think-floor-ms", "tick-budget-ms", "start-target-tokens",
	"speculate", "spec-type", "spec-synth-rates", "draft-model", "lora", "defaults",
	"think", "think-budget", "early-exit",
	"no-prefix-cache", "share-prefixes", "think-evict", "context-shift", "cache-ram", "cache-disk",
}

// maxModelTables bounds the tables; it is far above the models that one machine serves.
const maxModelTables = 256

// key returns a key of the table as errors name it.
func (m *Model) key(name string) string { return "models." + m.Name + "." + name }

// names returns the names by which requests may select the model: its own, then its aliases.
func (m *Model) names() []string { return append([]string{m.Name}, m.Aliases...) }

// ModelNamed returns the table whose name or alias is text, without regard to case; nil when there is none.
func (c *Config) ModelNamed(text string) *Model {
	for i := range c.Models {
		if slices.ContainsFunc(c.Models[i].names(), func(n string) bool { return strings.EqualFold(n, text) }) {
			return &c.Models[i]
		}
	}
	return nil
}

// loadModels reads the [models.NAME] tables of a file, in its order: the first one is the default model. Their options
// are checked by checkModels, when all layers are merged.
func (c *Config) loadModels(tables map[string]any, file []byte) error {
	if len(tables) > maxModelTables {
		return fmt.Errorf("it has %d tables [models.NAME]; the maximum is %d", len(tables), maxModelTables)
	}
	var errs []error
	taken := map[string]string{}
	for _, name := range tableOrder(file, tables) {
		m, err := c.loadModel(name, tables[name])
		errs = append(errs, err)
		for _, n := range m.names() {
			fold := strings.ToLower(n)
			if other := taken[fold]; other != "" {
				errs = append(errs, fmt.Errorf("table [models.%s]: the name %q is taken by [models.%s]", name, n,
					other))
			}
			taken[fold] = name
		}
		c.Models = append(c.Models, m)
	}
	return errors.Join(errs...)
}

// tableOrder returns the names of the tables [models.NAME] as they follow each other in a file. A decoded document does
// not tell: its tables are maps.
func tableOrder(file []byte, tables map[string]any) (names []string) {
	place := map[string]int{}
	note := func(key []string) {
		if len(key) < 2 || key[0] != "models" {
			return
		}
		if _, known := place[key[1]]; !known {
			place[key[1]] = len(place)
		}
	}
	var p unstable.Parser
	p.Reset(file)
	var table []string
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keyOf(e.Key())
			note(table)
		case unstable.KeyValue:
			noteValue(note, slices.Concat(table, keyOf(e.Key())), e.Value())
		}
	}
	names = slices.Sorted(maps.Keys(tables))
	order := func(name string) int {
		if i, known := place[name]; known {
			return i
		}
		return len(place)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(order(a), order(b)) })
	return names
}

// noteValue notes a key, and those of an inline table behind it: models = {a = {…}, b = {…}}.
func noteValue(note func([]string), key []string, value *unstable.Node) {
	note(key)
	if value.Kind != unstable.InlineTable || len(key) > 1 || key[0] != "models" {
		return
	}
	for in := value.Children(); in.Next(); {
		note(append(slices.Clone(key), keyOf(in.Node().Key())...))
	}
}

// keyOf returns the parts of a dotted TOML key.
func keyOf(parts unstable.Iterator) (key []string) {
	for parts.Next() {
		key = append(key, string(parts.Node().Data))
	}
	return key
}

func (c *Config) loadModel(name string, value any) (Model, error) {
	m := Model{Name: name, Model: name, IdleUnload: -1, Options: map[string]string{}}
	table, ok := value.(map[string]any)
	if !ok {
		return m, fmt.Errorf("key %q must be a table: [models.%s]", "models."+name, name)
	}
	if _, err := store.ParseName(name); err != nil {
		return m, fmt.Errorf("table [models.%s]: %w", name, err)
	}
	var errs []error
	seen := map[string]string{}
	c.dropGone(m.key(""), table, optionName)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		option := optionName(key)
		if first, twice := seen[option]; twice {
			errs = append(errs, fmt.Errorf("key %q and key %q are the same; keep one", m.key(first), m.key(key)))
			continue
		}
		seen[option] = key
		if err := m.set(c.layers.options, option, table[key]); err != nil {
			errs = append(errs, fmt.Errorf("key %q %w", m.key(key), err))
		}
	}
	return m, errors.Join(errs...)
}

// set takes the value of one key of the table. The error continues a sentence that begins with the key.
func (m *Model) set(options *pflag.FlagSet, key string, v any) error {
	switch key {
	case "model":
		text, ok := v.(string)
		if !ok || text == "" {
			return fmt.Errorf("is %v; it must be a GGUF file or the name of a model", v)
		}
		m.Model = text
		return nil
	case "aliases":
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("is %v; it must be a list of names", v)
		}
		for _, v := range list {
			alias, ok := v.(string)
			if !ok {
				return fmt.Errorf("holds %v; it must be a list of names", v)
			}
			if _, err := store.ParseName(alias); err != nil {
				return fmt.Errorf("holds a wrong name: %w", err)
			}
			m.Aliases = append(m.Aliases, alias)
		}
		return nil
	case "pinned":
		pinned, ok := v.(bool)
		if !ok {
			return fmt.Errorf("is %v; it must be true or false", v)
		}
		m.Pinned = pinned
		return nil
	case "idle-unload":
		text, _ := v.(string)
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf(`is %v; it must be a duration with a unit, such as "15m", or "0s" for never`, v)
		}
		m.IdleUnload = d
		return nil
	}
	switch f := options.Lookup(key); {
	case key == "alias": // of --model; tables have aliases
		return errors.New(`is unknown; did you mean "aliases"?`)
	case f != nil && !slices.Contains(modelOptions, key):
		return errors.New("is an option of the whole daemon; set it outside [models]")
	case f == nil:
		return fmt.Errorf("is unknown%s", didYouMean(key, append([]string{"model", "aliases", "pinned", "idle-unload"},
			modelOptions...)))
	}
	if list, ok := v.([]any); ok && key == "lora" {
		var texts []string
		for _, v := range list {
			text, ok := v.(string)
			if !ok || strings.Contains(text, ",") {
				return fmt.Errorf("holds %v; it must be a list of NAME=FILE or FILE, without commas", v)
			}
			texts = append(texts, text)
		}
		m.Options[key] = strings.Join(texts, ",")
		return nil
	}
	switch v.(type) {
	case string, int64, float64, bool:
		m.Options[key] = fmt.Sprint(v)
		return nil
	}
	return errors.New("must be a single value")
}

// checkModels checks the options of the [models.NAME] tables.
func (c *Config) checkModels() error {
	var errs []error
	for i := range c.Models {
		_, err := c.ForModel(&c.Models[i])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ForModel returns the configuration of the engine that serves m: c with m's model and options. As everywhere, the
// command line and the environment override the file, m's table included; the table overrides the rest of the file.
func (c *Config) ForModel(m *Model) (*Config, error) {
	options, out, _ := NewFlagSet()
	*out = *c
	out.layers = layers{options, maps.Clone(c.layers.source)}
	out.Model, out.HFRepo, out.Models = m.Model, "", nil
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(m.Options)) {
		if s := c.layers.source[name]; s == fromFlag || s == fromEnvironment {
			continue
		}
		f := options.Lookup(name)
		if err := f.Value.Set(m.Options[name]); err != nil {
			errs = append(errs, fmt.Errorf("key %q is %s: %w", m.key(name), m.Options[name], clierr.Value(f, err)))
		}
		out.layers.source[name] = fromFile
		if name == "think-budget" && !out.Given("meridian.min_think_tokens") {
			// The budget of the whole daemon may have lowered it.
			out.Meridian.MinThinkTokens = meridian.DefaultConfig().MinThinkTokens
		}
	}
	if !c.isDefault(m) { // whatever layer sets it, --draft-model is the default model's
		out.DraftModel, out.LoRA, out.Alias, out.Tags = m.Options["draft-model"], nil, nil, nil
		if out.DraftModel == "" && m.Options["spec-type"] == "" { // nor is there a head for it
			out.SpecType = strings.NewReplacer("draft-eagle3", specTexts[0], "draft-dflash", specTexts[0],
				"draft-dspark", specTexts[0]).Replace(out.SpecType)
		}
		if list := m.Options["lora"]; list != "" {
			out.LoRA = strings.Split(list, ",")
		}
		out.MMProj, out.MMProjFound = m.Options["mmproj"], false // likewise
	}
	out.applyThinkBudget()
	if len(errs) == 0 {
		if err := out.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("table [models.%s]: %w", m.Name, err))
		}
	}
	return out, errors.Join(errs...)
}

// DefaultModel returns the table of the model that requests without a model's name get; nil where that has none.
func (c *Config) DefaultModel() *Model {
	if c.Model == "" && len(c.Models) > 0 {
		return &c.Models[0]
	}
	return c.ModelNamed(c.Model)
}

// isDefault reports whether m is the model that requests without a model's name get.
func (c *Config) isDefault(m *Model) bool {
	d := c.DefaultModel()
	return d != nil && d.Name == m.Name
}

// settleModel keeps --model or --hf-repo, whichever the higher layer sets.
func (c *Config) settleModel() error {
	c.Router = c.Model == "" && c.HFRepo == ""
	if c.Model == "" || c.HFRepo == "" {
		return nil
	}
	order := []string{fromDefault, fromFile, fromEnvironment, fromFlag}
	rank := func(option string) int { return slices.Index(order, c.layers.source[option]) }
	switch cmp.Compare(rank("model"), rank("hf-repo")) {
	case 0:
		return errors.New("--model and --hf-repo exclude each other: both name the model to serve")
	case -1:
		c.Model = ""
	default:
		c.HFRepo = ""
	}
	return nil
}

// write appends the table to a configuration file.
func (m *Model) write(b *bytes.Buffer, options *pflag.FlagSet) {
	fmt.Fprintf(b, "\n[models.%s]\n%s\n", tableKey(m.Name), line("model", m.Model))
	if len(m.Aliases) > 0 {
		fmt.Fprintln(b, line("aliases", m.Aliases))
	}
	if m.Pinned {
		fmt.Fprintln(b, line("pinned", m.Pinned))
	}
	if m.IdleUnload >= 0 {
		fmt.Fprintln(b, line("idle-unload", m.IdleUnload.String()))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Options)) {
		fmt.Fprintln(b, line(name, tomlText(options.Lookup(name), m.Options[name])))
	}
}

// tableKey returns a model's name as a TOML key.
func tableKey(name string) string {
	if strings.ContainsAny(name, "./:") {
		return "'" + name + "'"
	}
	return name
}

// modelsSample returns the part of the sample file about the tables.
func modelsSample() string {
	var b strings.Builder
	b.WriteString(`
# ---- Models. A table each; its name is what requests and uma-serve -m call the model. ----

# [models.chat]
# model = 'qwen3:8b'         # a GGUF file or a name, as --model takes it (default: the table's name)
# aliases = ['gpt-4o-mini']  # further names
# pinned = true              # never unload it
# idle-unload = '15m'        # unload it after this time without a request; '0s' = never
# ctx-size = 16384           # options for this model alone; the command line and UMA_* variables override them
#
`)
	b.WriteString(comment("The options that a table may set: " + strings.Join(modelOptions, ", ") + "."))
	return b.String()
}
