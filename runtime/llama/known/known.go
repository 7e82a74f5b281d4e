// Package known has what is known about llama.cpp without asking it: its limits, what is wrong with some architectures
// there, and where its back ends lie.
package known

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/runtime"
)

// llama.cpp's own limits, as constants of its sources (LLAMA_MAX_SEQ, GGML_MAX_N_THREADS).
const (
	MaxSequences = 256
	MaxThreads   = 512
)

// Architectures whose code in llama.cpp is wrong for some batches, and what to ask for instead.
var (
	// NeedsEveryRow: the logits of all rows are asked for, whichever the caller wants.
	NeedsEveryRow = map[string]bool{
		// It hides the tokens of images in the first row of logits, and ends the process where there is none.
		"chameleon": true,
		// It computes all rows, and llama.cpp takes the first of them for those that were asked for: with one row in a
		// prompt's last piece, the piece's first token.
		"cogvlm": true,
		"plamo2": true, // see OneSequence
	}
	// HiddenTokens are the first and the one behind the last of those that the model makes images of: no text is to
	// hold them.
	HiddenTokens = map[string][2]int{"chameleon": {4, 8196}}
	// OneSequence: each piece of a batch that is computed at once is of one sequence. llama.cpp does so when embeddings
	// are asked for. It stores the states of several sequences in the place of others', or outside of the tensor.
	OneSequence = map[string]bool{"plamo2": true}
	// UnusedMemory: encoders for which llama.cpp makes a memory that it does not use.
	UnusedMemory = map[string]bool{"llama-embed": true}
)

// CheckOptions refuses numbers that llama.cpp would truncate, wrap or abort on.
func CheckOptions(o runtime.Options) error {
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"context", o.ContextTokens, 0, 1 << 30},
		{"batch", o.Batch, 0, 1 << 20},
		{"micro batch", o.MicroBatch, 0, 1 << 20},
		{"sequences", o.Sequences, 0, MaxSequences},
		{"threads", o.Threads, 0, MaxThreads},
		{"threads for prompts", o.ThreadsBatch, 0, MaxThreads},
		{"GPU layers", o.GPULayers, -1, 1 << 30},
		{"layers with experts in host memory", o.CPUMoE, -1, 1 << 30},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("%s is %d, want %d … %d", f.name, f.v, f.lo, f.hi)
		}
	}
	return nil
}

// BackendLibraries returns the libraries of device back ends (make backend-cuda, backend-vulkan) in UMA_BACKEND_DIR, or
// without that in the directory of the executable. llama.cpp's own search would try a list of names, and would not say
// why it leaves a library out. ggml-base and ggml-cpu are in the executable.
func BackendLibraries() (found []string) {
	dir := os.Getenv("UMA_BACKEND_DIR")
	if dir == "" {
		exe, err := os.Executable()
		if err != nil {
			return nil
		}
		if exe, err = filepath.EvalSymlinks(exe); err != nil {
			return nil
		}
		dir = filepath.Dir(exe)
	}
	files, err := os.ReadDir(dir) // a glob would read the folder's name as a pattern
	if err != nil {
		return nil
	}
	for _, f := range files {
		name, ok := strings.CutPrefix(f.Name(), "libggml-")
		if ok && strings.HasSuffix(name, ".so") && !strings.HasPrefix(name, "base") && !strings.HasPrefix(name, "cpu") {
			found = append(found, filepath.Join(dir, f.Name()))
		}
	}
	return found
}
