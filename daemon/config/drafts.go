package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// The kinds of drafts of --spec-type, by llama-server's names. Drafts from texts are made with each of them.
const (
	specAuto  = "auto"
	specNone  = "none"
	specModel = "draft-simple" // --draft-model
	specHead  = "draft-mtp"    // the head of the model's file, or an assistant in that of --draft-model
	specFile  = "draft-"       // and an architecture: a head, the file of --draft-model
)

// specTexts are llama-server's names of drafts from texts, of which there is one kind here.
var specTexts = []string{"ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"}

// HeadStates is the number of newest rows of a request whose states are kept for a head. That many tokens it knows of a
// text when it begins to guess.
const HeadStates = 128

// draftKinds are the kinds of drafts that --spec-type names.
type draftKinds struct {
	model, head, none bool
	file              string // the architecture of a head with a file
}

// drafts parses --spec-type.
func (c *Config) drafts() (k draftKinds, err error) {
	if c.SpecType == specAuto {
		return draftKinds{model: true}, nil // what a head costs whose guesses are wrong is not known well: docs/lab
	}
	kinds := strings.Split(strings.ReplaceAll(c.SpecType, "draft-dspark", specFile+gguf.ArchDFlash), ",")
	files := "" // what --draft-model has the file of
	for _, kind := range kinds {
		switch arch := kind[min(len(specFile), len(kind)):]; {
		case kind == specModel:
			k.model, files = true, files+kind
		case kind == specHead:
			k.head = true
		case kind == specFile+gguf.ArchEagle, kind == specFile+gguf.ArchDFlash:
			k.file, files = arch, files+kind
		case kind == specNone && len(kinds) == 1:
			k.none = true
		case slices.Contains(specTexts, kind):
		default:
			return draftKinds{}, fmt.Errorf("--spec-type is %q; it must be auto, none or a list of draft-mtp, "+
				"draft-eagle3, draft-dflash, draft-simple and %s with commas between them", c.SpecType, specTexts[0])
		}
	}
	if k.file != "" && (files != specFile+k.file || c.DraftModel == "" && len(c.Models) == 0) {
		err = fmt.Errorf("--spec-type is %s: --draft-model must name the file of one of its kinds", c.SpecType)
	} else if k.head && files == "" && c.DraftModel != "" && gguf.HeadArch(c.DraftModel) == gguf.ArchAssistant {
		k.head, k.file = false, gguf.ArchAssistant
	}
	return k, err
}

// HeadFile returns the architecture of the head that is used and whose file --draft-model is; "" = it is none.
func (c *Config) HeadFile() string {
	if k, err := c.drafts(); err == nil && c.DraftModel != "" && c.NoDrafts() == "" {
		return k.file
	}
	return ""
}

// SyntheticRates returns the chances of --spec-synth-rates that a drafted token is taken if those before it were, as
// core.Config has them.
func (c *Config) SyntheticRates() (chances []float64, err error) {
	before := 1.0
	for _, text := range c.SpecSynthRates {
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p >= 0 && p <= before) {
			return nil, fmt.Errorf("--spec-synth-rates has %q; it must be 0…1, and no larger than the one before", text)
		}
		chances, before = append(chances, p/max(before, 1e-300)), p
	}
	if len(chances) > core.MaxGuess {
		return nil, fmt.Errorf("--spec-synth-rates has %d numbers, at most %d are allowed", len(chances), core.MaxGuess)
	}
	return chances, nil
}

// NoDraft returns the reason why the options leave --draft-model unused, "" if it is used.
func (c *Config) NoDraft() string {
	k, err := c.drafts()
	switch off := c.NoDrafts(); {
	case off != "":
		return off
	case err == nil && !k.model && k.file == "":
		return "--spec-type leaves it out"
	}
	return ""
}

// NoHead returns the reason why the options leave the head of a model's file unused, "" if it is used.
func (c *Config) NoHead() string {
	k, err := c.drafts()
	switch off := c.NoDrafts(); {
	case off != "":
		return off
	case c.DraftModel != "" && c.NoDraft() == "":
		return "--draft-model makes the drafts"
	case c.SpecType == specAuto:
		return "--spec-type draft-mtp uses it"
	case err == nil && !k.head:
		return "--spec-type leaves it out"
	}
	return ""
}

// NoDrafts returns the reason why the options allow no drafts at all, "" if they allow some.
func (c *Config) NoDrafts() string {
	if n, err := c.speculation(); err == nil && n == 0 {
		return "--speculate is off"
	}
	if k, err := c.drafts(); err == nil && k.none {
		return "--spec-type is none"
	}
	return ""
}

// HeadContextTokens returns the number of cells of a head.
func (c *Config) HeadContextTokens() int {
	if c.CtxSize > 0 {
		return min(c.DraftCtxSize, max(c.CtxSize, minCtxSize))
	}
	return c.DraftCtxSize
}

// headBytes returns the memory that the head of a model takes beside its weights: cells, and the states of requests.
// The cells of a head with a file are draftNeed's, and the engine keeps the states of a whole batch.
func (c *Config) headBytes(info *gguf.Info) int64 {
	const widest = 1 << 20 // of a state, whatever a header claims
	if c.HeadFile() != "" {
		state := 4 * min(gguf.HeadReads(c.DraftModel), info.Layers) * min(info.Embedding, widest)
		return (int64(c.Parallel)*HeadStates + int64(c.BatchSize)) * state
	}
	if info.HeadLayers == 0 || c.NoHead() != "" {
		return 0
	}
	per, err := info.KVBytesPerToken("f16", "f16")
	if err != nil {
		return 0 // an error of the model's own cells
	}
	return per/(info.Layers-info.HeadLayers)*info.HeadLayers*int64(c.HeadContextTokens()) +
		int64(c.Parallel)*HeadStates*4*min(info.Embedding, widest)
}
