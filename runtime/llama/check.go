package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// llama.cpp's own limits, as constants of its sources (LLAMA_MAX_SEQ, GGML_MAX_N_THREADS).
const (
	maxSequences = 256
	maxThreads   = 512
)

func modelError(path, why string) error {
	if why == "" {
		why = "llama.cpp refused it without a reason"
	}
	return fmt.Errorf("%w: %s: %s", runtime.ErrModel, path, why)
}

// checkFile refuses a file that is not GGUF before llama.cpp opens it, with an error that says what kind it is. It
// returns what the file says.
func checkFile(path string) (gguf.Info, error) {
	if path == "" {
		return gguf.Info{}, fmt.Errorf("%w: no file is named", runtime.ErrModel)
	}
	// llama.cpp trusts the lengths in a header (a flipped bit made it allocate 14 GB for a 190 KB file); our reader
	// does not.
	info, err := gguf.Inspect(path)
	if err != nil {
		return gguf.Info{}, fmt.Errorf("%w: %w", runtime.ErrModel, err)
	}
	return info, nil
}

// Architectures whose code in llama.cpp is wrong for some batches, and what to ask for instead.
var (
	// needsEveryRow: the logits of all rows are asked for, whichever the caller wants.
	needsEveryRow = map[string]bool{
		// It hides the tokens of images in the first row of logits, and ends the process where there is none.
		"chameleon": true,
		// It computes all rows, and llama.cpp takes the first of them for those that were asked for: with one row in a
		// prompt's last piece, the piece's first token.
		"cogvlm": true,
		"plamo2": true, // see oneSequence
	}
	// hiddenTokens are the first and the one behind the last of those that the model makes images of: no text is to
	// hold them.
	hiddenTokens = map[string][2]int{"chameleon": {4, 8196}}
	// oneSequence: each piece of a batch that is computed at once is of one sequence. llama.cpp does so when embeddings
	// are asked for. It stores the states of several sequences in the place of others', or outside of the tensor.
	oneSequence = map[string]bool{"plamo2": true}
	// unusedMemory: encoders for which llama.cpp makes a memory that it does not use.
	unusedMemory = map[string]bool{"llama-embed": true}
)

// checkOptions refuses numbers that llama.cpp would truncate, wrap or abort on.
func checkOptions(o runtime.Options) error {
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"context", o.ContextTokens, 0, 1 << 30},
		{"batch", o.Batch, 0, 1 << 20},
		{"micro batch", o.MicroBatch, 0, 1 << 20},
		{"sequences", o.Sequences, 0, maxSequences},
		{"threads", o.Threads, 0, maxThreads},
		{"threads for prompts", o.ThreadsBatch, 0, maxThreads},
		{"GPU layers", o.GPULayers, -1, 1 << 30},
		{"layers with experts in host memory", o.CPUMoE, -1, 1 << 30},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("%s is %d, want %d … %d", f.name, f.v, f.lo, f.hi)
		}
	}
	return nil
}

// backendLibraries returns the libraries of device back ends (make backend-cuda, backend-vulkan) in UMA_BACKEND_DIR, or
// without that in the directory of the executable. llama.cpp's own search would try a list of names, and would not say
// why it leaves a library out. ggml-base and ggml-cpu are in the executable.
func backendLibraries() (found []string) {
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
