package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/meridian/fabric/nixl"
)

// The libraries of Mooncake Store do not reach the agent, and what the agent needs does not reach the daemon.
func TestLibraryPathIsTheAgents(t *testing.T) {
	verbs, other := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(verbs, "libibverbs.so.1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := []string{"HOME=/root", "LD_LIBRARY_PATH=" + verbs + ":" + other}
	before := slices.Clone(daemon)
	env := environment(nixl.Config{Library: "/opt/nixl/libnixl_capi.so", Listen: "10.0.0.1:7447"}, daemon)
	if want := "LD_LIBRARY_PATH=/opt/nixl:" + other; !slices.Contains(env, want) ||
		slices.ContainsFunc(env, func(e string) bool { return strings.Contains(e, verbs) }) {
		t.Errorf("the agent has %q, want %q", env, want)
	}
	if !slices.Equal(daemon, before) {
		t.Errorf("the daemon has %q", daemon)
	}
	env = environment(nixl.Config{Library: "libnixl_capi.so"}, daemon)
	if !slices.Contains(env, daemon[1]) {
		t.Errorf("a library that the dynamic linker finds: %q", env)
	}
}
