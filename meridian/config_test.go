package meridian

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestConfigDefaults(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if o := c.Options(); o.BudgetTokens != Unset || o.Mode != ModeAuto {
		t.Errorf("%+v", o)
	}
	typ := reflect.TypeFor[Config]()
	seen := map[string]bool{}
	for i := range typ.NumField() {
		tag := typ.Field(i).Tag.Get("toml")
		if tag == "" || seen[tag] || strings.ToLower(tag) != tag {
			t.Errorf("field %s has the toml name %q", typ.Field(i).Name, tag)
		}
		seen[tag] = true
	}
}

// TestConfigNamesWhatIsWrong sets every number to what it cannot be.
func TestConfigNamesWhatIsWrong(t *testing.T) {
	typ := reflect.TypeFor[Config]()
	for i := range typ.NumField() {
		c := DefaultConfig()
		f := reflect.ValueOf(&c).Elem().Field(i)
		switch f.Kind() {
		case reflect.Int:
			f.SetInt(-7)
		case reflect.Float64:
			f.SetFloat(math.NaN())
		default:
			continue
		}
		name := "meridian." + typ.Field(i).Tag.Get("toml") + " is "
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), name) ||
			!strings.Contains(err.Error(), "must be") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, x := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.MaxThinkTokens = 100 }, "meridian.max_think_tokens is 100; it must be at least " +
			"min_think_tokens (512)"},
		{func(c *Config) { c.EATProbeMaxIntervalTokens = 3 }, "meridian.eat_probe_max_interval_tokens is 3; it must " +
			"be 0 or at least eat_probe_interval_tokens (32)"},
		{func(c *Config) { c.EATSuffix = strings.Repeat("\n", 200) }, "meridian.eat_suffix has 200 bytes"},
		{func(c *Config) { c.Markers.Open = []string{"<t>"} }, "meridian.markers: close has 0 markers"},
	} {
		c := DefaultConfig()
		x.change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%v, want %q", err, x.want)
		}
	}
}

func TestEnumsAreWords(t *testing.T) {
	var m Mode
	var e EarlyExit
	var f RPDIForm
	for word, u := range map[string]interface{ UnmarshalText([]byte) error }{"on": &m, "both": &e, "indicator": &f} {
		if err := u.UnmarshalText([]byte(word)); err != nil {
			t.Error(err)
		}
		if err := u.UnmarshalText([]byte("maybe")); err == nil ||
			!strings.Contains(err.Error(), `"maybe" is none of `) {
			t.Errorf("%v", err)
		}
	}
	if m != ModeOn || e != ExitBoth || f != RPDIIndicator {
		t.Errorf("%v %v %v", m, e, f)
	}
}
