package opening

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/model/gguf"
	"github.com/uma-serve/uma-serve/runtime"
)

// CheckDraft compares the headers of --draft-model and of the model at path. What cannot be read is left to the engine,
// but for a head that does not exist: it is opened behind the model.
func CheckDraft(c *config.Config, path string) error {
	head, err := gguf.Brief(c.DraftModel)
	model, errModel := gguf.Brief(path)
	switch arch := c.HeadFile(); {
	case errors.Is(err, fs.ErrNotExist) && arch != "":
	case err == nil && head.HeadFile != nil && arch == "":
		return fmt.Errorf("--draft-model: %s is a head (%s): --spec-type %s uses it", c.DraftModel,
			head.HeadFile.Kind, head.HeadFile.SpecType)
	case err != nil || errModel != nil || arch == "":
		return nil
	case head.HeadFile != nil && head.Architecture != arch:
		err = fmt.Errorf("its architecture is %q: --spec-type %s uses it", head.Architecture, head.HeadFile.SpecType)
	default:
		err = head.DraftsFor(&model)
	}
	if err != nil {
		return fmt.Errorf("--draft-model: the head %s: %w", c.DraftModel, err)
	}
	return nil
}

// HeadFileOptions returns the options with which the head in the file of --draft-model is opened.
func HeadFileOptions(c *config.Config) runtime.HeadOptions {
	file := DraftOptions(c)
	return runtime.HeadOptions{ContextTokens: file.ContextTokens, Batch: file.Batch, Sequences: file.Sequences,
		File: &file}
}
