package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
	"github.com/uma-serve/uma-serve/sched"
)

// TestPolicyOptions: info lists the options that the policy in use obeys, with their values, and no others.
func TestPolicyOptions(t *testing.T) {
	ofOthers := map[string][]string{
		"uma": {"itl-target-ms", "think-floor-ms"}, "meridian": {"tick-budget-ms"},
		"stock":           {"itl-target-ms", "tick-budget-ms", "start-target-tokens"},
		"meridian_static": {"itl-target-ms", "tick-budget-ms", "start-target-tokens"},
	}
	own := map[string]reports.PolicyOption{
		"uma": policyOption("tick-budget-ms", 12), "meridian": policyOption("itl-target-ms", 34),
		"stock": policyOption("batch-size", 78), "meridian_static": policyOption("batch-size", 78),
	}
	for _, policy := range sched.Policies() {
		flags, c, _ := NewFlagSet()
		if err := flags.Parse([]string{"--policy", policy, "--tick-budget-ms", "12", "--itl-target-ms", "34",
			"--batch-size", "78"}); err != nil {
			t.Fatal(err)
		}
		got := c.PolicyOptions()
		if !slices.Contains(got, own[policy]) {
			t.Errorf("%s: %v lacks %v", policy, got, own[policy])
		}
		for _, o := range got {
			if flags.Lookup(o.Name) == nil && meridianKeys[o.Name] == 0 {
				t.Errorf("%s: %q is no option", policy, o.Name)
			}
			if slices.Contains(ofOthers[policy], o.Name) {
				t.Errorf("%s does not obey %s", policy, o.Name)
			}
		}
	}
}

func TestSpeculateOption(t *testing.T) {
	for value, want := range map[string]int{"auto": 16, "off": 0, "0": 0, "1": 1, "16": 16} {
		if got, err := (&Config{Speculate: value}).speculation(); got != want || err != nil {
			t.Errorf("--speculate %s: %d, %v", value, got, err)
		}
	}
	for _, value := range []string{"", "17", "-1", "on", "1.5"} {
		_, err := (&Config{Speculate: value}).speculation()
		if err == nil || !strings.Contains(err.Error(), "--speculate") {
			t.Errorf("--speculate %q: %v", value, err)
		}
	}
}

// TestSpecType: the kinds, and what they want of --draft-model.
func TestSpecType(t *testing.T) {
	assistant := ggufgen.Cached(t, ggufgen.AssistantOf(ggufgen.TinyGemma4(false), ggufgen.HeadRandom))
	for _, c := range []struct {
		kinds, file, wrong string
		want               draftKinds
		head               string
	}{
		{kinds: "auto", want: draftKinds{model: true}},
		{kinds: "draft-mtp,draft-simple", file: "f", want: draftKinds{head: true, model: true}},
		{kinds: "ngram-simple"},
		{kinds: "none", want: draftKinds{none: true}},
		{kinds: "draft-eagle3", file: "f", want: draftKinds{file: "eagle3"}, head: "eagle3"},
		{kinds: "draft-dflash", file: "f", want: draftKinds{file: "dflash"}, head: "dflash"},
		{kinds: "draft-eagle3,draft-mtp", file: "f", want: draftKinds{file: "eagle3", head: true}, head: "eagle3"},
		{kinds: "draft-eagle3", wrong: "--draft-model must name the file"},
		{kinds: "draft-eagle3,draft-simple", file: "f", wrong: "the file of one"},
		{kinds: "none,draft-mtp", wrong: "--spec-type is"},
		{kinds: "draft-eagle3,draft-dflash", file: "f", wrong: "the file of one"},
		{kinds: "draft-dspark", file: "f", want: draftKinds{file: "dflash"}, head: "dflash"},
		{kinds: "draft-mtp", file: assistant, want: draftKinds{file: "gemma4-assistant"}, head: "gemma4-assistant"},
		{kinds: "draft-mtp,draft-simple", file: assistant, want: draftKinds{head: true, model: true}},
		{kinds: "draft-mtp", file: "f", want: draftKinds{head: true}},
		{kinds: "dflash", file: "f", wrong: "draft-eagle3"},
	} {
		cfg := &Config{Speculate: "auto", SpecType: c.kinds, DraftModel: c.file}
		k, err := cfg.drafts()
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s with %q: %v, want %q", c.kinds, c.file, err, c.wrong)
		}
		if err == nil && (k != c.want || cfg.HeadFile() != c.head) {
			t.Errorf("%s with %q: %+v, a head in a file: %q", c.kinds, c.file, k, cfg.HeadFile())
		}
		cfg.Speculate = "off"
		if cfg.HeadFile() != "" {
			t.Errorf("%s: a head is used with --speculate off", c.kinds)
		}
	}
}

// TestSyntheticRates: a rate of steps becomes the chance of a draft behind those that were taken.
func TestSyntheticRates(t *testing.T) {
	for text, want := range map[string][]float64{"": nil, "0.5": {0.5}, "0.8,0.4,0.4,0,0": {0.8, 0.5, 1, 0, 0},
		"1,1": {1, 1}} {
		c := &Config{}
		if err := (&listFlag{values: &c.SpecSynthRates}).Set(text); err != nil {
			t.Fatal(err)
		}
		if got, err := c.SyntheticRates(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, rates := range [][]string{{"1.1"}, {"-0.1"}, {"0.4", "0.5"}, {"NaN"}, {"high"},
		slices.Repeat([]string{"1"}, 17)} {
		_, err := (&Config{SpecSynthRates: rates}).SyntheticRates()
		if err == nil || !strings.Contains(err.Error(), "--spec-synth-rates has") {
			t.Errorf("%q: %v", rates, err)
		}
	}
}

// TestShutdownShares: the parts of --shutdown-timeout never exceed it.
func TestShutdownShares(t *testing.T) {
	for _, total := range []time.Duration{0, time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		for _, durable := range []bool{false, true} {
			c := Config{ShutdownTimeout: total}
			requests, stores := c.ShutdownShares(durable)
			if requests < total/2 || stores < 0 || requests+stores > total || durable != (stores > 0) && total > 0 {
				t.Errorf("%v, durable %v: %v and %v", total, durable, requests, stores)
			}
		}
	}
}
