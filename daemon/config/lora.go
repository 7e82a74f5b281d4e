package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// LoRA is an adapter of --lora.
type LoRA struct {
	Name  string
	File  string
	Scale float32 // with which it applies
	// Always: it applies to each request that does not choose its adapters, as llama-server's do. Else to those that
	// name it.
	Always bool
}

const (
	// MaxLoRA is the most adapters of a model.
	MaxLoRA = 64
	// MaxLoRAScale is the largest scale of an adapter, and of a negative one without its sign.
	MaxLoRAScale = 1000
)

var loraName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// LoRAs parses --lora: [NAME=]FILE[:SCALE].
func (c *Config) LoRAs() ([]LoRA, error) {
	var out []LoRA
	var errs []error
	taken := map[string]bool{}
	for _, text := range c.LoRA {
		a, err := parseLoRA(text)
		if fold := strings.ToLower(a.Name); err == nil && taken[fold] {
			err = fmt.Errorf("two adapters have the name %s; write NAME=FILE", a.Name)
		} else {
			taken[fold] = true
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--lora %.200q: %w", text, err))
		}
		out = append(out, a)
	}
	if len(out) > MaxLoRA {
		errs = append(errs, fmt.Errorf("--lora names %d adapters; the maximum is %d", len(out), MaxLoRA))
	}
	return out, errors.Join(errs...)
}

// Check checks the values of an adapter that is loaded by request. The error names the field of it.
func (a LoRA) Check() error {
	switch {
	case !loraName.MatchString(a.Name):
		return fmt.Errorf("field \"lora_name\" is %.100q; it must have 1…64 letters, digits, dots, dashes and "+
			"underscores", a.Name)
	case !(a.Scale >= -MaxLoRAScale && a.Scale <= MaxLoRAScale):
		return fmt.Errorf("field \"scale\" is %g; it must be %d…%d", a.Scale, -MaxLoRAScale, MaxLoRAScale)
	}
	return nil
}

// String returns the adapter as --lora has it.
func (a LoRA) String() string {
	text := fmt.Sprintf("%s:%v", a.File, a.Scale)
	if !a.Always {
		text = a.Name + "=" + text
	}
	return text
}

func parseLoRA(text string) (LoRA, error) {
	a := LoRA{File: text, Scale: 1}
	if name, file, found := strings.Cut(text, "="); found && !strings.Contains(name, "/") {
		a.Name, a.File = name, file
	} else {
		a.Always = true
	}
	if i := strings.LastIndexByte(a.File, ':'); i > 0 {
		if v, err := strconv.ParseFloat(a.File[i+1:], 32); err == nil {
			if !(v >= -MaxLoRAScale && v <= MaxLoRAScale) {
				return a, fmt.Errorf("the scale is %g; it must be %d…%d", v, -MaxLoRAScale, MaxLoRAScale)
			}
			a.File, a.Scale = a.File[:i], float32(v)
		}
	}
	if a.Always {
		a.Name = strings.TrimSuffix(filepath.Base(a.File), ".gguf")
	}
	switch {
	case a.File == "":
		return a, errors.New("it must be NAME=FILE, NAME=FILE:SCALE, or FILE")
	case !loraName.MatchString(a.Name):
		return a, fmt.Errorf("the name is %.100q; it must have 1…64 letters, digits, dots, dashes and underscores: "+
			"write NAME=FILE", a.Name)
	}
	return a, nil
}

// loraBytes returns the memory of the adapters: nearly all of a file are weights. A file that is not there is reported
// when the model is loaded.
func (c *Config) loraBytes() (n int64) {
	list, _ := c.LoRAs()
	for _, a := range list {
		if st, err := os.Stat(a.File); err == nil {
			n += st.Size()
		}
	}
	return n
}

// absoluteLoRA makes the paths of --lora absolute.
func (c *Config) absoluteLoRA() error {
	list, err := c.LoRAs()
	if err != nil {
		return err
	}
	texts := make([]string, len(list))
	for i, a := range list {
		file, err := filepath.Abs(a.File)
		if err != nil {
			return err
		}
		a.File = file
		texts[i] = a.String()
	}
	c.LoRA = texts
	return nil
}
