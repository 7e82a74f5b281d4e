package workload

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// datasetFiles are the data sets that other programs have downloaded, as Hugging Face's libraries lay them into their
// cache: hub/datasets--OWNER--NAME/snapshots/COMMIT/FILE. Nothing is downloaded here.
var datasetFiles = map[string][]string{
	"sharegpt": {
		"datasets--anon8231489123--ShareGPT_Vicuna_unfiltered/snapshots/*/ShareGPT_V3_unfiltered_cleaned_split*.json",
		"datasets--*--*ShareGPT*/snapshots/*/*.json",
	},
	"math500": {
		"datasets--HuggingFaceH4--MATH-500/snapshots/*/test.jsonl",
		"datasets--*--*MATH-500*/snapshots/*/*.jsonl",
	},
}

// hubCache returns the folder of Hugging Face's cache, by its variables.
func hubCache(getenv func(string) string) string {
	home := cmp.Or(getenv("HF_HOME"), filepath.Join(cmp.Or(getenv("XDG_CACHE_HOME"),
		filepath.Join(getenv("HOME"), ".cache")), "huggingface"))
	return cmp.Or(getenv("HF_HUB_CACHE"), filepath.Join(home, "hub"))
}

// located returns the path that was named or, if it is "", that of a copy on this machine.
func located(name, path string) (string, error) {
	if path != "" {
		return path, nil
	}
	return findDataset(name, os.Getenv)
}

// findDataset returns the file of a data set that is on this machine. Of several it is the newest.
func findDataset(name string, getenv func(string) string) (string, error) {
	cache := hubCache(getenv)
	for _, pattern := range datasetFiles[name] {
		found, err := filepath.Glob(filepath.Join(cache, filepath.FromSlash(pattern)))
		if err != nil {
			return "", err
		}
		found = slices.DeleteFunc(found, func(path string) bool {
			info, err := os.Stat(path)
			return err != nil || !info.Mode().IsRegular()
		})
		if len(found) > 0 {
			return slices.MaxFunc(found, func(a, b string) int {
				x, _ := os.Stat(a)
				y, _ := os.Stat(b)
				if x == nil || y == nil {
					return strings.Compare(a, b)
				}
				return cmp.Or(x.ModTime().Compare(y.ModTime()), strings.Compare(a, b))
			}), nil
		}
	}
	return "", fmt.Errorf("workload %s is read from a file, and %s has none: name it with --file (of workload mix: "+
		"MATH-500's with --math-file), or download the data "+
		"set with Hugging Face's library", name, cache)
}
