package opening

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
)

// TestModelFiles: an engine process may read every file of a split model, and no more.
func TestModelFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"a-00001-of-00003.gguf", "a-00002-of-00003.gguf", "a-00003-of-00003.gguf",
		"a-00001-of-00002.gguf", "b-00001-of-00009.gguf", "whole.gguf"} {
		if err := os.WriteFile(file(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string][]string{
		"a-00001-of-00003.gguf": {"a-00001-of-00003.gguf", "a-00002-of-00003.gguf", "a-00003-of-00003.gguf"},
		"a-00002-of-00003.gguf": {"a-00002-of-00003.gguf"},
		"b-00001-of-00009.gguf": {"b-00001-of-00009.gguf"},
		"whole.gguf":            {"whole.gguf"},
	} {
		var list []string
		for _, name := range want {
			list = append(list, file(name))
		}
		if got := ModelFiles(file(path)); !slices.Equal(got, list) {
			t.Errorf("%s: %q, want %q", path, got, list)
		}
	}
}

// TestSandboxPolicy: an engine process may read the file of its draft model, and uses the network for telemetry.
func TestSandboxPolicy(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // for the folders that it creates
	p := Policy(&config.Config{Model: "/m", DraftModel: "/draft", Telemetry: "grpc://collector"})
	if !slices.Contains(p.Read, "/draft") || !p.Network {
		t.Errorf("%+v", p)
	}
	keys := []string{"/etc/uma/namespace.key", "/etc/uma/ca.pem", "/etc/uma/password"}
	for i, url := range []string{"mooncake://host?metadata=http://host:1/m&namespace_key_file=" + keys[0],
		"valkeys://host?ca=" + keys[1], "valkey://host?password_file=" + keys[2]} {
		if p := Policy(&config.Config{Model: "/m", Fabric: url}); !slices.Contains(p.Read, keys[i]) {
			t.Errorf("%s: %s is not among the files to read: %v", url, keys[i], p.Read)
		}
	}
	if Policy(&config.Config{Model: "/m"}).Network {
		t.Error("the process may use the network, which nothing needs")
	}
}
