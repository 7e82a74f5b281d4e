package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestRefusedCacheDir: a daemon whose --cache-dir cannot be used does not start, and says which option is wrong.
func TestRefusedCacheDir(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	readOnly := "/proc/uma-serve" // also for root
	used := filepath.Join(dir, "used")
	r := serve(t, fake.Config{}, "--cache-ram", "1MiB", "--cache-dir", used)
	for _, refused := range []string{file, filepath.Join(file, "below"), open, readOnly, used} {
		fs, cfg, _ := config.NewFlagSet()
		if err := fs.Parse([]string{"--model", "fake", "--socket", filepath.Join(dir, "s"), "--cache-dir",
			refused}); err != nil {
			t.Fatal(err)
		}
		if err := cfg.Load(nil); err != nil {
			t.Fatal(err)
		}
		s, err := New(cfg, slog.New(slog.DiscardHandler))
		if err == nil || s != nil || !strings.HasPrefix(err.Error(), "--cache-dir "+refused+" cannot be used: ") {
			t.Errorf("%s: %v", refused, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "s")); err == nil {
			t.Errorf("%s: the socket is left", refused)
		}
	}
	r.nothingLeft()
}
