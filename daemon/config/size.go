package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is an amount of memory: "512MiB", "2GB", "25%" of free memory, "0" for none, or "auto". A bare number is MiB, as
// in llama-server's --cache-ram.
type Size struct {
	Auto  bool
	Share float64 // 0…1 of free memory; 0 = use Bytes
	Bytes int64

	text string
}

// sizeUnits are the suffixes of sizes.
var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10}, {"mib", 1 << 20}, {"gib", 1 << 30}, {"tib", 1 << 40},
	{"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9}, {"tb", 1e12},
	{"k", 1 << 10}, {"m", 1 << 20}, {"g", 1 << 30}, {"t", 1 << 40}, {"b", 1},
}

// Set parses a size. It implements pflag.Value.
func (s *Size) Set(text string) error {
	const must = `write a size such as "512MiB" or "2GB", a percentage of free memory such as "25%", "0" for none, ` +
		`or "auto"`
	t := strings.ToLower(strings.TrimSpace(text))
	out := Size{text: strings.TrimSpace(text)}
	if t == "auto" {
		out.Auto = true
		*s = out
		return nil
	}
	number, scale, percent := t, float64(1<<20), false
	if n, ok := strings.CutSuffix(t, "%"); ok {
		number, percent = n, true
	} else {
		for _, u := range sizeUnits {
			if n, ok := strings.CutSuffix(t, u.name); ok {
				number, scale = n, u.bytes
				break
			}
		}
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("%q is not a size; %s", text, must)
	case v < 0:
		return fmt.Errorf("%q is negative; %s", text, must)
	case percent && v > 100:
		return fmt.Errorf("%q is more than 100%%; %s", text, must)
	case !percent && v*scale > 1<<60:
		return fmt.Errorf("%q is too large; %s", text, must)
	case percent:
		out.Share = v / 100
	default:
		out.Bytes = int64(v * scale)
	}
	*s = out
	return nil
}

// String returns the text that was set.
func (s *Size) String() string { return s.text }

// MarshalText returns the text that was set.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.text), nil }

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error { return s.Set(string(text)) }

// Type implements pflag.Value.
func (s *Size) Type() string { return "size" }

// Of returns the size in bytes, given the bytes of free memory. ok is false for "auto".
func (s *Size) Of(free uint64) (bytes int64, ok bool) {
	switch {
	case s.Auto:
		return 0, false
	case s.Share > 0:
		return int64(s.Share * float64(free)), true
	}
	return s.Bytes, true
}

// absolute returns an error if the size is "auto" or a percentage.
func (s *Size) absolute() error {
	if s.Auto || s.Share > 0 {
		return errors.New(`it must be a size such as "10GiB"`)
	}
	return nil
}

func sizeOf(text string) Size {
	var s Size
	if err := s.Set(text); err != nil {
		panic("config: default size: " + err.Error())
	}
	return s
}
