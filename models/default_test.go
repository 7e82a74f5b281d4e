package models

import (
	"os"
	"testing"

	"github.com/uma-serve/uma-serve/internal/gguf"
)

func TestDefaultWritesAModelOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	path, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	info, err := gguf.Inspect(path)
	if err != nil || info.ChatTemplate == "" {
		t.Fatalf("%+v %v", info, err)
	}
	before, _ := os.Stat(path)
	again, err := Default()
	after, _ := os.Stat(path)
	if err != nil || again != path || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the second call gave %s %v", again, err)
	}
}
