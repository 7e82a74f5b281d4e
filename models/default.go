// Package models holds what uma-serve serves when it is given no model file.
package models

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// Notice says plainly what the default model is; the daemon prints it when it serves it.
const Notice = "no --model given: serving a small model with random weights. It shows how the server works and talks nonsense; use -m FILE.gguf for a real one."

// demo is a model of some megabytes whose answers end by themselves after some dozens of tokens.
func demo() ggufgen.Config {
	c := ggufgen.Tiny()
	c.Name, c.Type = "uma-demo", ggufgen.Q8_0
	c.VocabSize, c.Embedding, c.Layers, c.Heads, c.KVHeads, c.FFN = 2048, 256, 6, 8, 2, 768
	c.EndEvery = 60
	c.ThinkCloseEvery = 40
	return c
}

// Default returns the path of the default model, written to the user's cache the first time.
func Default() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "uma-serve")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the cache for the default model: %w", err)
	}
	path := filepath.Join(dir, "uma-demo-v1.gguf")
	if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() {
		return path, nil
	}
	if err := ggufgen.Write(path, demo()); err != nil {
		return "", fmt.Errorf("write the default model: %w", err)
	}
	return path, nil
}
