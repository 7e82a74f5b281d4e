package daemon

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/uma-serve/uma-serve/internal/clierr"
	"github.com/uma-serve/uma-serve/meridian"
)

// The [meridian] tables of the configuration file, and --meridian KEY=VALUE, which sets one of their keys.
//
// A key is a field of meridian.Config, or an option of this program that has a place there by its nature
// ([meridian.disagg] fabric = … is --fabric). The tables of the original's meridian.toml ([scheduler], [entropy],
// [kv_memory], [disagg]) may be written as sub-tables; a key means the same in each of them and in [meridian] itself.

// meridianTables are the sub-tables that only group keys.
var meridianTables = []string{"scheduler", "entropy", "kv_memory", "disagg"}

// meridianFlags are the options with a second name as a key of [meridian]: the two are one setting.
var meridianFlags = map[string]string{
	"output_tpot_budget_ms":    "itl-target-ms",
	"think_tpot_budget_ms":     "think-floor-ms",
	"think_mode":               "think",
	"max_think_tokens":         "think-budget",
	"early_exit":               "early-exit",
	"fabric":                   "fabric",
	"fabric_ttl":               "fabric-ttl",
	"offload_threshold_blocks": "offload-threshold-blocks",
	"think_evict":              "think-evict",
	"kv_block_tokens":          "kv-block-tokens",
}

// meridianKeys are the keys of [meridian] that are fields of meridian.Config, with their field's index.
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

// allMeridianKeys are all there are, sorted.
func allMeridianKeys() []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(meridianKeys)), maps.Keys(meridianFlags))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// flattenMeridian lifts the keys of the sub-tables that only group.
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

// loadMeridian sets what the [meridian] tables of a file say and no layer above has set. seen has the options that the
// file names at its top.
func (c *Config) loadMeridian(table map[string]any, seen map[string]string) error {
	flat, err := flattenMeridian(table)
	errs := []error{err}
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
	if _, text := v.(string); !text && isWord(reflect.TypeFor[meridian.Config]().Field(i).Type) { // a number would be read as the word's place in its list
		return fmt.Errorf("key %q is %v: it must be a word", "meridian."+key, v)
	}
	doc, err := toml.Marshal(map[string]any{key: v})
	if err == nil {
		// Into a copy: a list must replace the one before, and a half-read value must not stay.
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
	return fmt.Errorf("key %q is %v: %w", "meridian."+key, v, meridianWanted(reflect.TypeFor[meridian.Config]().Field(i).Type, err))
}

// isWord reports whether a field is one of a few words, which its type reads itself.
func isWord(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// meridianWanted is err, with which a value of a [meridian] key was refused; where that is the TOML decoder's, what the
// key takes.
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

// meridianFlag is --meridian KEY=VALUE, which may be given many times, or once with commas between.
type meridianFlag struct {
	c    *Config
	keys []string
	text []string
}

// Set reads "key=value" pairs. A value is written as in TOML; a word needs no quotes.
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
		if err := m.c.setMeridian(key, doc["v"]); err != nil {
			return err
		}
		m.keys = append(m.keys, key)
		m.text = append(m.text, key+"="+value)
	}
	return nil
}

// String is what was set.
func (m *meridianFlag) String() string { return strings.Join(m.text, ",") }

// Type is the word for it in --help.
func (m *meridianFlag) Type() string { return "key=value" }

// textFlag makes an enum of package meridian an option.
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
	b, _ := f.v.MarshalText() // its own words cannot fail
	return string(b)
}

func (f textFlag) Type() string { return "word" }

// settleThinkBudget puts --think-budget where it belongs, in max_think_tokens. A budget below min_think_tokens lowers
// that too, unless it is set explicitly: a request for short thinking implies a short minimum.
func (c *Config) settleThinkBudget() {
	if c.ThinkBudget < 0 {
		return
	}
	c.Meridian.MaxThinkTokens = c.ThinkBudget
	if !c.given("meridian.min_think_tokens") {
		c.Meridian.MinThinkTokens = min(c.Meridian.MinThinkTokens, c.ThinkBudget)
	}
}

// didYouMean is the end of a sentence about an unknown name: the word it is most like, if one is alike at all.
func didYouMean(name string, words []string) string {
	near := clierr.Nearest(name, words)
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}
