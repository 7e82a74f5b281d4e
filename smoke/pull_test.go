//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/models/pull/pulltest"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestServeFromHub: uma-serve -hf downloads a model and serves it; afterwards it needs no network. uma-cli pull prints
// what uma-serve -m takes.
func TestServeFromHub(t *testing.T) {
	file, err := os.ReadFile(ggufgen.Cached(t, ggufgen.Tiny()))
	if err != nil {
		t.Fatal(err)
	}
	hub := &pulltest.Server{Repos: map[string]*pulltest.Repo{
		"owner/tiny-GGUF": {Files: map[string][]byte{"tiny-Q8_0.gguf": file}}}}
	address := httptest.NewServer(hub)
	defer address.Close()
	home := t.TempDir()
	own := filepath.Join(home, "models")
	env := []string{"HOME=" + home, "XDG_CACHE_HOME=" + home, "UMA_MODELS_DIR=" + own, "HF_HOME=", "HF_HUB_CACHE=",
		"HUGGINGFACE_HUB_CACHE=", "LLAMA_CACHE=",
		"OLLAMA_MODELS=" + home, "HF_ENDPOINT=" + address.URL, "HF_TOKEN="}
	serve := func(args ...string) {
		t.Helper()
		p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit, env, append([]string{"-t", "1"},
			args...)...)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		s := &server{Proc: p, t: t}
		c := s.dial()
		c.request(`{"id":"a","prompt":"hello","max_tokens":3}`)
		if ev, err := c.end("a"); err != nil || ev.Kind != wire.EventEOS {
			t.Errorf("%q: %+v, %v", args, ev, err)
		}
		c.Close()
		if err := p.Stop(waitfor.Limit); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	serve("-hf", "owner/tiny-GGUF")
	path := filepath.Join(own, "hf.co", "owner", "tiny-GGUF", "tiny-Q8_0.gguf")
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, file) {
		t.Fatalf("it is not in the models directory: %v", err)
	}
	sent := hub.Served()
	serve("-hf", "owner/tiny-GGUF", "--offline")
	serve("-m", "owner/tiny-GGUF")
	cmd := exec.Command(filepath.Join(bin, "uma-cli"), "pull", "hf.co/owner/tiny-GGUF:Q8_0")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) != path {
		t.Errorf("uma-cli pull: %v %q", err, out)
	}
	if hub.Served() != sent {
		t.Errorf("%d bytes were sent again", hub.Served()-sent)
	}

	cmd = exec.Command(filepath.Join(bin, "uma-serve"), "-hf", "owner/none", "--socket", filepath.Join(home, "s"))
	cmd.Env = append(append(os.Environ(), env...), "UMA_CONFIG=")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out),
		"there is no public repository owner/none") {
		t.Errorf("a repository that is not there: exit status %d\n%s", cmd.ProcessState.ExitCode(), out)
	}
}
