//go:build cgo

package llama

import (
	"path/filepath"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/enginetest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// model writes a generated model into a temporary directory.
func model(t testing.TB, cfg ggufgen.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), cfg.Name+".gguf")
	if err := ggufgen.Write(path, cfg); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestContract(t *testing.T) {
	for _, cfg := range []ggufgen.Config{ggufgen.Tiny(), ggufgen.TinySWA()} {
		t.Run(cfg.Name, func(t *testing.T) {
			path := model(t, cfg)
			enginetest.Run(t, func(t *testing.T, o runtime.Options) runtime.Engine {
				o.ModelPath = path
				e, err := Open(o)
				if err != nil {
					t.Fatal(err)
				}
				return e
			})
		})
	}
}
