package store

import "context"

// Puller downloads models. Package models/pull implements it; a program without one cannot download.
type Puller interface {
	// Pull downloads the model that name says into dir, the models directory, checks it, and returns the path of its
	// GGUF file, of several the first. A host must be in name: HuggingFace, Ollama or another registry. A tag that is
	// missing is Pull's to choose. A model that is already in dir, whole, is not downloaded again.
	Pull(ctx context.Context, name Name, dir string) (path string, err error)
}
