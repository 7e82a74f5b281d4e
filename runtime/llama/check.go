package llama

import (
	"fmt"

	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/llama/known"
)

// ReferenceParams are the parameters of a ReferenceSampler.
type ReferenceParams = known.ReferenceParams

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
