//go:build cgo && llama_engine

package llama

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestGuesses: what the contract asks of guesses, on a memory that TestContract does not have: some layers have states.
func TestGuesses(t *testing.T) {
	cfg := ggufgen.TinyGrids(ggufgen.Qwen35)
	if testLayers(t) > 0 {
		cfg.Type = ggufgen.F32 // see TestSplit
	}
	enginetest.Guesses(t, mustOpen(t, runtime.Options{ModelPath: model(t, cfg), ContextTokens: 512, Batch: 48,
		MicroBatch: 48, Sequences: 8, GPULayers: testLayers(t)}))
}

// TestGuessesOfArchitectures: what the contract asks of guesses, on a random model of each architecture, so on each
// kind of memory. UMA_ARCHS_READY is the folder of the models to which scripts/archs.sh has given a vocabulary.
func TestGuessesOfArchitectures(t *testing.T) {
	dir := os.Getenv("UMA_ARCHS_READY")
	if dir == "" {
		t.Skip("UMA_ARCHS_READY is not set")
	}
	list, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no models: %v", err)
	}
	for _, path := range list {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".gguf"), func(t *testing.T) {
			e, err := Open(runtime.Options{ModelPath: path, ContextTokens: 512, Batch: 48, MicroBatch: 48, Sequences: 8,
				Threads: testThreads})
			if err != nil { // such as a diffusion model
				info, unread := gguf.Brief(path)
				if unread != nil || !strings.Contains(err.Error(), info.Architecture) {
					t.Error(err)
				}
				return
			}
			defer e.Close()
			if e.Model().Encoder {
				t.Skip("it generates nothing")
			}
			enginetest.Guesses(t, e)
		})
	}
}
