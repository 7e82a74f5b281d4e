package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/models/store"
)

// A file of --models-preset is that of llama-server's router: sections [NAME] of options without their dashes, and a
// section [*] of those that hold in each. A section becomes a table [models.NAME].

// presetAll is the section whose options hold in each.
const presetAll = "*"

// preset is a section.
type preset struct {
	name string
	keys map[string]string
}

// loadPreset adds the models of a file of --models-preset to the tables of the configuration file.
func (c *Config) loadPreset(path string) error {
	fail := func(err error) error { return fmt.Errorf("--models-preset %s: %w", path, err) }
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("--models-preset: %w", clierr.File(path, err))
	case !st.Mode().IsRegular():
		return fail(fmt.Errorf("it is %s, not a file", clierr.Kind(st.Mode())))
	case st.Size() > maxConfigBytes:
		return fail(fmt.Errorf("it has %d bytes; the maximum is %d", st.Size(), maxConfigBytes))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--models-preset: %w", clierr.File(path, err))
	}
	list, err := parsePresets(text)
	if err != nil {
		return fail(err)
	}
	var errs []error
	for _, p := range list {
		m, told, err := c.presetModel(p)
		if err == nil && c.ModelNamed(m.Name) != nil {
			err = errors.New("the name is taken by another section or table")
		}
		if err != nil {
			errs = append(errs, fail(fmt.Errorf("section [%s]: %w", p.name, err)))
			continue
		}
		for _, t := range told {
			c.Warnings = append(c.Warnings, fmt.Sprintf("--models-preset, section [%s]: %s", p.name, t))
		}
		c.Models = append(c.Models, m)
	}
	if n := len(c.Models); n > maxModelTables {
		errs = append(errs, fail(fmt.Errorf("there are %d models; the maximum is %d", n, maxModelTables)))
	}
	return errors.Join(errs...)
}

// Reread returns c with the models that the file of --models-preset has now, and with the warnings about them alone. c
// stays as it is.
func (c *Config) Reread() (*Config, error) {
	out := *c
	out.Models = slices.DeleteFunc(slices.Clone(c.Models), func(m Model) bool { return m.Preset })
	out.Warnings = nil
	if err := out.loadPreset(c.ModelsPreset); err != nil {
		return nil, err
	}
	switch had := c.DefaultModel(); {
	case had != nil && out.DefaultModel() == nil && c.Model != "":
		return nil, fmt.Errorf("--models-preset %s: --model names section [%s], which is gone", c.ModelsPreset,
			had.Name)
	case had != nil && out.DefaultModel() == nil:
		return nil, fmt.Errorf("--models-preset %s: it has no section; at least one model must stay", c.ModelsPreset)
	}
	return &out, out.checkModels()
}

// parsePresets reads the sections in their order; those of [*] are merged into each.
func parsePresets(text []byte) ([]preset, error) {
	var list []preset
	all := map[string]string{}
	var at map[string]string // nil: before the first section, where llama-server has a version
	n := 0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		n++
		line := strings.TrimSpace(s.Text())
		switch {
		case line == "" || line[0] == ';' || line[0] == '#':
		case line[0] == '[':
			name, ok := strings.CutSuffix(line[1:], "]")
			name = strings.TrimSpace(name)
			switch {
			case !ok || name == "":
				return nil, fmt.Errorf("line %d must be a section [NAME]", n)
			case name == presetAll:
				at = all
			case len(list) == maxModelTables:
				return nil, fmt.Errorf("line %d: there are more than %d sections", n, maxModelTables)
			default:
				at = map[string]string{}
				list = append(list, preset{name, at})
			}
		default:
			key, value, ok := strings.Cut(line, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if !ok || key == "" {
				return nil, fmt.Errorf("line %d must be OPTION = VALUE", n)
			}
			if at != nil {
				at[strings.TrimLeft(key, "-")] = value
			}
		}
	}
	for _, p := range list {
		for key, value := range all {
			if _, own := p.keys[key]; !own {
				p.keys[key] = value
			}
		}
	}
	return list, nil
}

// presetModel returns the table of a section, and what of it is left out.
func (c *Config) presetModel(p preset) (m Model, told []string, err error) {
	m = Model{Name: p.name, Model: p.name, IdleUnload: -1, Options: map[string]string{}, Preset: true, Doubled: true}
	if _, err := store.ParseName(p.name); err != nil {
		return m, nil, err
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(p.keys)) {
		value := p.keys[key]
		switch key {
		case "model", "m", "hf-repo", "hf", "hfr":
			m.Model = value
			continue
		case "alias", "a":
			for name := range strings.SplitSeq(value, ",") {
				m.Aliases = append(m.Aliases, strings.TrimSpace(name))
			}
			continue
		case "dedup-cache-models":
			once, ok := flagValue(value)
			if !ok {
				errs = append(errs, fmt.Errorf("option %s is %.60q; it must be 1 or 0", key, value))
			}
			m.Doubled = !once
			continue
		case "load-on-startup", "stop-timeout", "tags":
			told = append(told, key+" is left out")
			continue
		}
		for _, word := range presetArgs(key, value) {
			name, text, valued := strings.Cut(strings.TrimLeft(word, "-"), "=")
			_, why, foreign := strings.Cut(text, "\x00") // of llamaLine, not a key that is called so
			switch f := c.layers.options.Lookup(name); {
			case foreign && name == "refused":
				errs = append(errs, fmt.Errorf("option %s is refused: %s", key, why))
			case f == nil, !foreign && (name == "refused" || name == "told"):
				errs = append(errs, fmt.Errorf("option %.60q is unknown", key))
			case !slices.Contains(modelOptions, name):
				told = append(told, key+" is left out")
			case name == "defaults": // of several keys, each a field
				all, err := MergeDefaults(m.Options[name], text)
				if err != nil {
					errs = append(errs, fmt.Errorf("option %s: %w", key, err))
				}
				m.Options[name] = all
			case !valued:
				m.Options[name] = "true"
			default:
				m.Options[name] = text
			}
		}
	}
	for _, name := range m.Aliases {
		if _, err := store.ParseName(name); err != nil {
			errs = append(errs, fmt.Errorf("alias: %w", err))
		}
	}
	return m, told, errors.Join(errs...)
}

// presetArgs returns an option of a section as words --OPTION=VALUE of a command line.
func presetArgs(key, value string) []string {
	short := "-" + key
	_, known := llamaArgs[short]
	if _, renamed := llamaNames[short]; renamed || known || len(key) == 1 {
		key = short
	} else {
		key = "--" + key
	}
	if a, ok := llamaArgs[key]; ok && a.flag { // a value says whether the flag is set
		return NormalizeArgs([]string{key + "=" + value})
	}
	if long, ok := map[string]string{"-c": "--ctx-size", "-b": "--batch-size", "-t": "--threads"}[key]; ok {
		key = long
	}
	if long, ok := llamaNames[key]; ok {
		key = long
	}
	if _, ok := llamaArgs[key]; ok {
		return NormalizeArgs([]string{key, value})
	}
	return []string{key + "=" + value}
}
