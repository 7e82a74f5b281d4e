//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/bench"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestTwoModels runs uma-bench two-models for a moment: two models behind one front, with the arbiter and without it.
func TestTwoModels(t *testing.T) {
	model := ggufgen.Cached(t, ggufgen.Tiny())
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), "two-models", "--chat", model, "--prompts",
		model, "--prompt", "100", "--alone", "300ms", "--storm", "300ms", "--clients", "2", "--llama-server",
		"212.5,0.5", "--json")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs.String())
	}
	var sides []bench.TwoModels
	if err := json.Unmarshal(out, &sides); err != nil || len(sides) != 3 {
		t.Fatalf("%v in %s", err, out)
	}
	for _, s := range sides[:2] {
		if s.Chat.Tokens == 0 || s.ChatAlone.Tokens == 0 || s.Alone <= 0 || s.Prompts <= 0 || s.Ratio <= 0 {
			t.Errorf("%+v", s)
		}
	}
	if s := sides[2]; !s.FromFlags || s.Chat.P95 != 212.5 || s.Ratio != 0.5 || s.MeetsChat || s.MeetsRatio {
		t.Errorf("%+v", s)
	}
	bad := exec.CommandContext(t.Context(), filepath.Join(bin, "uma-bench"), "two-models", "--llama-server", "fast")
	if out, err := bad.CombinedOutput(); err == nil || !strings.Contains(string(out), "an ITL in ms and a ratio") {
		t.Errorf("%v, %s", err, out)
	}
}
