package config

import (
	"os"
	"path/filepath"
)

// BackendDir returns the folder in which the engine looks for backend libraries: $UMA_BACKEND_DIR, else that of the
// program.
func BackendDir() string {
	dir := os.Getenv("UMA_BACKEND_DIR")
	if exe, err := os.Executable(); dir == "" && err == nil {
		dir = filepath.Dir(exe)
	}
	return dir
}
