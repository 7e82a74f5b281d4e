package config

import (
	"os"
	"path/filepath"
)

// HasDeviceBackend reports whether the engine will find a back end built as a library (make backend-cuda,
// backend-vulkan).
func HasDeviceBackend() bool {
	found, _ := filepath.Glob(filepath.Join(BackendDir(), "libggml-*"))
	return len(found) > 0
}

// BackendDir returns the folder in which the engine looks for backend libraries: $UMA_BACKEND_DIR, else that of the
// program.
func BackendDir() string {
	dir := os.Getenv("UMA_BACKEND_DIR")
	if exe, err := os.Executable(); dir == "" && err == nil {
		dir = filepath.Dir(exe)
	}
	return dir
}
