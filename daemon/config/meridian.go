package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/meridian"
)

// The [meridian] table of the configuration file, and --meridian KEY=VALUE, which sets one of its keys.
//
// A key is a field of meridian.Config, or a second name of an option ([meridian.disagg] fabric = … is --fabric). The
// tables of Meridian's meridian.toml ([scheduler], [entropy], [kv_memory], [disagg]) are accepted as sub-tables; a key
// means the same in each of them and in [meridian].

// meridianTables are the sub-tables that only group keys.
var meridianTables = []string{"scheduler", "entropy", "kv_memory", "disagg"}

// meridianFlags maps keys of [meridian] to the option that they set.
var meridianFlags = map[string]string{
	"output_tpot_budget_ms":    "itl-target-ms",
	"think_tpot_budget_ms":     "think-floor-ms",
	"think_mode":               "think",
	"max_think_tokens":         "think-budget",
	"early_exit":               "early-exit",
	"fabric":                   "fabric",
	"offload_threshold_blocks": "offload-threshold-blocks",
	"think_evict":              "think-evict",
}

// meridianKeys maps keys of [meridian] to the index of their field in meridian.Config.
var meridianKeys = func() map[string]int {
	m := map[string]int{}
	t := reflect.TypeFor[meridian.Config]()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("toml"), ","); name != "" && name != "-" {
			m[name] = i
		}
	}
	return m
}()

// isMeridianKey reports whether a file and --meridian may set a field of meridian.Config. The others are constants,
// which only measurements vary (ParseMeridian).
func isMeridianKey(key string) bool {
	_, field := meridianKeys[key]
	return field && meridianFlags[key] == "" && gone[key] == ""
}

// allMeridianKeys returns all keys of [meridian], sorted.
func allMeridianKeys() []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(meridianKeys)), maps.Keys(meridianFlags))
	keys = slices.DeleteFunc(keys, func(k string) bool { return meridianFlags[k] == "" && !isMeridianKey(k) })
	slices.Sort(keys)
	return slices.Compact(keys)
}

// flattenMeridian moves the keys of meridianTables up into one table.
func flattenMeridian(table map[string]any) (map[string]any, error) {
	flat := map[string]any{}
	var errs []error
	put := func(path, key string, v any) {
		if _, twice := flat[key]; twice {
			errs = append(errs, fmt.Errorf("key %q is given twice (once in another table of [meridian])", path))
		}
		flat[key] = v
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		sub, isTable := table[key].(map[string]any)
		if !isTable || !slices.Contains(meridianTables, key) {
			put("meridian."+key, key, table[key])
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(sub)) {
			name := k
			if key == "entropy" && k == "enabled" {
				name = "entropy_enabled"
			}
			put("meridian."+key+"."+k, name, sub[k])
		}
	}
	return flat, errors.Join(errs...)
}

// loadMeridian sets the keys of the file's [meridian] table that no higher layer has set. seen holds the options at the
// top of the file.
func (c *Config) loadMeridian(table map[string]any, seen map[string]string) error {
	flat, err := flattenMeridian(table)
	errs := []error{err}
	c.dropGone("meridian.", flat, func(key string) string { return key })
	source := c.layers.source
	for _, key := range slices.Sorted(maps.Keys(flat)) {
		option, set := meridianFlags[key], error(nil)
		switch {
		case option == "" && source["meridian."+key] != "":
		case option == "":
			if set = c.setMeridian(key, flat[key]); set == nil {
				source["meridian."+key] = fromFile
			}
		case seen[option] != "":
			set = fmt.Errorf("key %q and key %q are the same option; keep one", "meridian."+key, seen[option])
		case source[option] != "":
		default:
			source[option] = fromFile
			if err := setScalar(c.layers.options.Lookup(option), flat[key]); err != nil {
				set = fmt.Errorf("key %q %w", "meridian."+key, err)
			}
		}
		errs = append(errs, set)
	}
	return errors.Join(errs...)
}

// setMeridian sets one field of c.Meridian from a value of a TOML document.
func (c *Config) setMeridian(key string, v any) error {
	i, ok := meridianKeys[key]
	if !ok {
		return fmt.Errorf("unknown key %q%s", "meridian."+key, didYouMean(key, allMeridianKeys()))
	}
	// An enum's decoder would accept a number as an index.
	if _, text := v.(string); !text && isWord(reflect.TypeFor[meridian.Config]().Field(i).Type) {
		return fmt.Errorf("key %q is %v: it must be a word", "meridian."+key, v)
	}
	doc, err := toml.Marshal(map[string]any{key: v})
	if err == nil {
		// Decode into a fresh value: a list replaces the old one, and a failed value changes nothing.
		fresh := meridian.DefaultConfig()
		d := toml.NewDecoder(strings.NewReader(string(doc))).DisallowUnknownFields()
		if err = d.Decode(&fresh); err == nil {
			reflect.ValueOf(&c.Meridian).Elem().Field(i).Set(reflect.ValueOf(fresh).Field(i))
			return nil
		}
	}
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		return fmt.Errorf("key %q has an unknown key: %s", "meridian."+key, strings.TrimSpace(unknown.String()))
	}
	return fmt.Errorf("key %q is %v: %w", "meridian."+key, v,
		meridianWanted(reflect.TypeFor[meridian.Config]().Field(i).Type, err))
}

// isWord reports whether a field's type is an enum that parses its words.
func isWord(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// meridianWanted returns the error for a refused value: an enum's error names the words, for other types it says what
// the key takes.
func meridianWanted(t reflect.Type, err error) error {
	if isWord(t) {
		return errors.New(strings.TrimPrefix(err.Error(), "toml: "))
	}
	switch t.Kind() {
	case reflect.Bool:
		return errors.New("it must be true or false")
	case reflect.Int, reflect.Int64:
		return errors.New("it must be a whole number")
	case reflect.Float64:
		return errors.New("it must be a number")
	case reflect.String:
		return errors.New("it must be a string")
	}
	return errors.New(`it must be a table such as { open = ["<think>"], close = ["</think>"] }`)
}

// meridianFlag is --meridian KEY=VALUE, repeatable or comma-separated.
type meridianFlag struct {
	c    *Config
	all  bool // fields that are no keys too
	keys []string
	text []string
}

// Set parses KEY=VALUE pairs. A value is written as in TOML; a word needs no quotes.
func (m *meridianFlag) Set(text string) error {
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			return fmt.Errorf("%q is not KEY=VALUE", pair)
		}
		key, value = strings.ReplaceAll(strings.TrimSpace(key), "-", "_"), strings.TrimSpace(value)
		if flag := meridianFlags[key]; flag != "" {
			return fmt.Errorf("%q is set by its own option: --%s", key, flag)
		}
		var doc map[string]any
		if toml.Unmarshal([]byte("v = "+value), &doc) != nil {
			doc = map[string]any{"v": value}
		}
		if text := goneText("meridian." + key); text != "" && !m.all {
			return errors.New(text)
		}
		if err := m.c.setMeridian(key, doc["v"]); err != nil {
			return err
		}
		m.keys = append(m.keys, key)
		m.text = append(m.text, key+"="+value)
	}
	return nil
}

// ParseMeridian sets fields of cfg from KEY=VALUE pairs, as --meridian does, and also those that are constants of the
// daemon.
func ParseMeridian(cfg *meridian.Config, pairs string) error {
	c := Config{Meridian: *cfg}
	if err := (&meridianFlag{c: &c, all: true}).Set(pairs); err != nil {
		return err
	}
	*cfg = c.Meridian
	return cfg.Validate()
}

// String returns the pairs that were set.
func (m *meridianFlag) String() string { return strings.Join(m.text, ",") }

// Type implements pflag.Value.
func (m *meridianFlag) Type() string { return "key=value" }

// textFlag is the flag of an enum of package meridian.
type textFlag struct {
	v interface {
		MarshalText() ([]byte, error)
		UnmarshalText([]byte) error
	}
}

func (f textFlag) Set(text string) error { return f.v.UnmarshalText([]byte(text)) }

func (f textFlag) String() string {
	if f.v == nil {
		return ""
	}
	b, _ := f.v.MarshalText() // a value that UnmarshalText accepted
	return string(b)
}

func (f textFlag) Type() string { return "word" }

// applyThinkBudget copies --think-budget to max_think_tokens. A budget below min_think_tokens lowers that too, unless
// it was set.
func (c *Config) applyThinkBudget() {
	if c.ThinkBudget < 0 {
		return
	}
	c.Meridian.MaxThinkTokens = c.ThinkBudget
	if !c.Given("meridian.min_think_tokens") {
		c.Meridian.MinThinkTokens = min(c.Meridian.MinThinkTokens, c.ThinkBudget)
	}
}

// didYouMean returns a suggestion to append to an error about an unknown name, "" if no word is similar.
func didYouMean(name string, words []string) string {
	near := clierr.Nearest(name, words)
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}
