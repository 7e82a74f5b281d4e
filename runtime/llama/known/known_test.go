package known

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestBackendLibraries: the libraries of back ends are found in the folder that UMA_BACKEND_DIR names, and no others.
func TestBackendLibraries(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with [brackets]")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libggml-vulkan.so", "libggml-cuda.so", "libggml-cuda.so.0", "libggml-base.so",
		"libggml-cpu-haswell.so", "libggml.so", "libllama.so", ".libggml-cuda.so.17"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("UMA_BACKEND_DIR", dir)
	want := []string{filepath.Join(dir, "libggml-cuda.so"), filepath.Join(dir, "libggml-vulkan.so")}
	if got := BackendLibraries(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	t.Setenv("UMA_BACKEND_DIR", filepath.Join(dir, "missing"))
	if got := BackendLibraries(); got != nil {
		t.Errorf("%q in a folder that is missing", got)
	}
}
