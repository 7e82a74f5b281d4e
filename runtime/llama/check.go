package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/internal/gguf"
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
// returns the rows of the model's table of learned positions, 0 for a model without one.
func checkFile(path string) (positions int, err error) {
	if path == "" {
		return 0, fmt.Errorf("%w: no file is named", runtime.ErrModel)
	}
	// llama.cpp trusts the lengths in a header (a flipped bit made it allocate 14 GB for a 190 KB file); our reader
	// does not.
	info, err := gguf.Inspect(path)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", runtime.ErrModel, err)
	}
	if why := unusable[info.Architecture]; why != "" {
		return 0, modelError(path, fmt.Sprintf("architecture %q cannot be served: %s", info.Architecture, why))
	}
	return int(info.Positions), nil
}

// unusable are architectures whose code in llama.cpp ends the process on ordinary prompts, with the reason.
var unusable = map[string]string{
	"chameleon": "llama.cpp ends the process in each step that computes a part of a prompt (it hides the tokens of " +
		"images in the logits, of which such a step has none)",
	"plamo2": "llama.cpp computes a step of several sequences wrong, and ends the process in such steps",
}

// computesEveryRow are architectures whose code in llama.cpp computes the logits of all rows of a batch, whichever were
// asked for. llama.cpp takes the first rows of them for those that were: with one row in a prompt's last piece, that is
// the piece's first token. When all rows are asked for, each is in its place.
var computesEveryRow = map[string]bool{"cogvlm": true}

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
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("%s is %d, want %d … %d", f.name, f.v, f.lo, f.hi)
		}
	}
	return nil
}

// backendLibraries are the libraries of device back ends (make backend-cuda, backend-vulkan) in UMA_BACKEND_DIR, or
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
