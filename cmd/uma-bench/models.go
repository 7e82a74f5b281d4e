package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// benchSizes are the shapes of generated models, by the name of their size.
var benchSizes = map[string][]ggufgen.Config{
	"135m": {ggufgen.Bench135M(), ggufgen.Bench135MWide()},
	"1b":   {ggufgen.Bench1B()},
	"30m":  {ggufgen.Bench30M()},
}

// benchSizeNames lists benchSizes for a help text.
var benchSizeNames = strings.Join(slices.Sorted(maps.Keys(benchSizes)), ", ")

// benchModelFile is a model to measure.
type benchModelFile struct {
	path    string
	weights string // "Q4_K_M"; "" for a file that the user named
}

// benchModels returns the file that the user named, or else generated models of each of the types of weights: of the
// first shape whose rows can be stored so. They are written to the user's cache the first time.
func benchModels(file string, weights []string, shapes ...ggufgen.Config) ([]benchModelFile, error) {
	if file != "" {
		return []benchModelFile{{path: file}}, nil
	}
	var models []benchModelFile
	for _, w := range weights {
		t := ggufgen.Type(strings.ToLower(w))
		if !slices.Contains(ggufgen.Types(), t) {
			return nil, usageError{fmt.Errorf("--weights has %q; it takes %s", w, ggufgen.TypeNames())}
		}
		c, err := shapeFor(t, shapes)
		if err != nil {
			return nil, err
		}
		path, err := cachedModel(fmt.Sprintf("uma-%s-%s-v1.gguf", strings.TrimPrefix(c.Name, "ggufgen-"), t), c)
		if err != nil {
			return nil, err
		}
		models = append(models, benchModelFile{path, strings.ToUpper(string(t))})
	}
	if len(models) == 0 {
		return nil, usageError{fmt.Errorf("--weights is empty; it takes %s", ggufgen.TypeNames())}
	}
	return models, nil
}

// shapeFor returns the first of shapes with weights of type t. Q4_K_M wants one whose rows are whole super-blocks: in
// another it has no Q4_K.
func shapeFor(t ggufgen.Type, shapes []ggufgen.Config) (ggufgen.Config, error) {
	var err error
	for _, c := range shapes {
		if c.Type = t; t == ggufgen.Q4_K_M {
			c.Type = ggufgen.Q4_K
		}
		if err = c.Validate(); err == nil {
			c.Type = t
			return c, nil
		}
	}
	return ggufgen.Config{}, err
}

// benchModel returns the model of --model: file, or where that is "" the generated model of 135 M parameters, Q8_0.
func benchModel(file string) (string, error) {
	models, err := benchModels(file, []string{"q8_0"}, ggufgen.Bench135M())
	if err != nil {
		return "", err
	}
	return models[0].path, nil
}

// cachedModel returns the model c in the user's cache, written there the first time.
func cachedModel(name string, c ggufgen.Config) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	path := filepath.Join(cache, "uma-serve", name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	fmt.Fprintln(os.Stderr, "writing the benchmark model", path)
	return path, ggufgen.Write(path, c)
}
