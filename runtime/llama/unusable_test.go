package llama

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/gguffile"
	"github.com/uma-serve/uma-serve/runtime"
)

// TestUnusableArchitecture: a model on which llama.cpp would end the process is refused by name, and another is not.
func TestUnusableArchitecture(t *testing.T) {
	for arch, want := range map[string]string{"chameleon": `architecture "chameleon" cannot be served`,
		"plamo2": `architecture "plamo2" cannot be served`, "llama": ""} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(gguffile.Write(f, []gguffile.KV{{Key: "general.architecture", Value: arch}}, nil), f.Close())
		if err != nil {
			t.Fatal(err)
		}
		_, err = checkFile(path)
		if want == "" && err != nil || want != "" &&
			(!errors.Is(err, runtime.ErrModel) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", arch, err, want)
		}
	}
}
