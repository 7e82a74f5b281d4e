//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// TestFlagsOverEnvironment: the daemon listens where the command line says, under its policy, whatever the environment
// says.
func TestFlagsOverEnvironment(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.sock")
	p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit,
		[]string{"UMA_SOCKET=" + other, "UMA_POLICY=stock", "UMA_PARALLEL=3"}, "-t", "1", "--policy", "uma")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Proc: p, t: t}
	defer p.Stop(waitfor.Limit)
	if in := s.info(); in.Config.Policy != "uma" || in.Config.Parallel != 3 {
		t.Errorf("policy %s, parallel %d; want uma of the command line and 3 of the environment", in.Config.Policy,
			in.Config.Parallel)
	}
}

// TestBuiltInModelHasItsContext: without options the built-in model has the context that it was trained on, and
// llama.cpp finds nothing to warn about.
func TestBuiltInModelHasItsContext(t *testing.T) {
	p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit, nil, "-t", "1")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Proc: p, t: t}
	defer p.Stop(waitfor.Limit)
	if in := s.info(); in.ContextTokens() != 2048 {
		t.Errorf("the built-in model starts with %d cells, want 2048", in.ContextTokens())
	}
	for _, word := range []string{"overflow", "n_ctx_seq"} {
		if strings.Contains(p.Log(), word) {
			t.Errorf("the log has %q:\n%s", word, p.Log())
		}
	}
}
