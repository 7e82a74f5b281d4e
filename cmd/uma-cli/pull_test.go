package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/models/pull"
	"github.com/uma-serve/uma-serve/models/pull/pulltest"
)

// pullServer is a hub and a registry on loopback.
func pullServer(t *testing.T, fault func(*http.Request) pulltest.Fault) (s *pulltest.Server, address string) {
	t.Helper()
	model := pulltest.GGUF(300_000, 1)
	s = &pulltest.Server{Fault: fault,
		Repos: map[string]*pulltest.Repo{"owner/name": {Files: map[string][]byte{"name-Q4_K_M.gguf": model,
			"name-Q8_0.gguf": model, "mmproj-F16.gguf": model}},
			"owner/split": {Files: map[string][]byte{}}},
		Images: map[string]*pulltest.Image{"owner/image:8b": {Private: true,
			Layers: []pulltest.Layer{{MediaType: pulltest.ModelLayer, Data: model}}}}}
	for i, part := range pulltest.Shards(2, 100_000, 7) {
		s.Repos["owner/split"].Files["split-Q4_0-0000"+string(rune('1'+i))+"-of-00002.gguf"] = part
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

func pulling(t *testing.T, address, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := program(t, "/nonexistent/uma.sock", append([]string{"pull", "--models-dir", dir}, args...)...)
	cmd.Env = append(cmd.Env, "HF_ENDPOINT="+address)
	return cmd
}

// TestPull: the command prints the path of the first file alone on standard output, and what it does on standard error.
func TestPull(t *testing.T) {
	_, address := pullServer(t, nil)
	dir := t.TempDir()
	for _, c := range []struct {
		name, path string
		stderr     []string
	}{
		{"hf.co/owner/name", "hf.co/owner/name/name-Q4_K_M.gguf", []string{
			"hf.co/owner/name:Q4_K_M, 586 KiB in 2 files\n", "Others: Q8_0 293 KiB",
			"1/2 name-Q4_K_M.gguf: 293 KiB of 293 KiB\n", "2/2 mmproj-F16.gguf: 293 KiB of 293 KiB\n"}},
		{"hf.co/owner/name:q8_0", "hf.co/owner/name/name-Q8_0.gguf", []string{"hf.co/owner/name:Q8_0"}},
		{"--no-mmproj hf.co/owner/name:q8_0", "hf.co/owner/name/name-Q8_0.gguf", []string{"left out: mmproj-F16.gguf"}},
		{"hf.co/owner/split", "hf.co/owner/split/split-Q4_0-00001-of-00002.gguf", []string{" in 2 files\n",
			"2/2 split-Q4_0-00002-of-00002.gguf: 97.6 KiB of 97.6 KiB\n"}},
		{strings.TrimPrefix(address, "http://") + "/owner/image:8b", strings.TrimPrefix(address, "http://") +
			"/owner/image/8b.gguf", nil},
	} {
		var out, stderr bytes.Buffer
		cmd := pulling(t, address, dir, strings.Fields(c.name)...)
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); err != nil || out.String() != filepath.Join(dir, c.path)+"\n" {
			t.Errorf("%s: %v, %q\n%s", c.name, err, out.String(), stderr.String())
		}
		for _, want := range c.stderr {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: %q, want %q in it", c.name, stderr.String(), want)
			}
		}
		if strings.Contains(stderr.String(), "\x1b") || strings.Contains(stderr.String(), "\r") {
			t.Errorf("%s: %q has more than plain lines", c.name, stderr.String())
		}
	}
}

// TestPulledByName: what is pulled is listed and shown by its name, and rm leaves nothing of it.
func TestPulledByName(t *testing.T) {
	s, address := pullServer(t, nil)
	s.Change(func() {
		image := s.Images["owner/image:8b"]
		image.Layers = append(image.Layers,
			pulltest.Layer{MediaType: pulltest.LicenceLayer, Data: []byte("the licence")},
			pulltest.Layer{MediaType: pulltest.TemplateLayer, Data: []byte("the {{ .Prompt }}")},
			pulltest.Layer{MediaType: pulltest.ParamsLayer, Data: []byte(`{"temperature":0.6}`)})
	})
	host, dir := strings.TrimPrefix(address, "http://"), filepath.Join(t.TempDir(), "models")
	cli := func(args ...string) string {
		t.Helper()
		cmd := program(t, "/nonexistent/uma.sock", args...)
		cmd.Env = append(cmd.Env, "HF_ENDPOINT="+address, "UMA_MODELS_DIR="+dir)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, err.(*exec.ExitError).Stderr)
		}
		return string(out)
	}
	names := []string{"owner/name:Q4_K_M", "owner/split:Q4_0", host + "/owner/image:8b"}
	for _, name := range names {
		full := name
		if !strings.HasPrefix(name, host) {
			full = "hf.co/" + name
		}
		if path := strings.TrimSpace(cli("pull", full)); !strings.HasPrefix(path, dir) {
			t.Errorf("%s is in %s", name, path)
		}
	}
	list := cli("models")
	for _, name := range names {
		if !strings.Contains(list, name) {
			t.Errorf("%s is not in the list\n%s", name, list)
		}
	}
	shown := cli("show", names[2])
	for _, want := range []string{"the licence", "the {{ .Prompt }}", "temperature 0.6"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show: %q is not in\n%s", want, shown)
		}
	}
	for _, name := range names {
		cli("rm", name)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v %v are left in %s", err, left, dir)
	}
}

// TestPullRefused: exit statuses, and what standard error says to do.
func TestPullRefused(t *testing.T) {
	s, address := pullServer(t, nil)
	s.Change(func() {
		s.Log = func(r *http.Request) {
			if strings.Contains(r.URL.Path, "offline") {
				t.Errorf("asked for %s", r.URL)
			}
		}
	})
	for _, c := range []struct {
		args, env string
		status    int
		want      string
	}{
		{"", "", exitUsage, "name one model"},
		{"a b", "", exitUsage, "name one model"},
		{"../x", "", exitUsage, "a name is qwen3:8b"},
		{"hf.co/owner/name:Q9", "", exitError, "pull one of: Q4_K_M, Q8_0"},
		{"hf.co/owner/offline --offline", "", exitError, "--offline, UMA_OFFLINE or HF_HUB_OFFLINE is set"},
		{"hf.co/owner/offline", "UMA_OFFLINE=1", exitError, "pull it without them"},
		{"hf.co/owner/offline", "HF_HUB_OFFLINE=1", exitError, "pull it without them"},
		{"hf.co/owner/name --connections 99", "", exitUsage, "want 1 to 32"},
		{"hf.co/owner/name --allow-host https://x", "", exitUsage, "no name of a host"},
		{"hf.co/owner/name", "HF_ENDPOINT=nowhere", exitUsage, "HF_ENDPOINT"},
		{"hf.co/owner/name", "HF_TOKEN_PATH=/nonexistent/token", exitError, "/nonexistent/token"},
		{"hf.co/owner/name --models-dir /proc/uma", "", exitError, "--models-dir"},
	} {
		var stderr bytes.Buffer
		cmd := pulling(t, address, t.TempDir(), strings.Fields(c.args)...)
		if c.env != "" {
			cmd.Env = append(cmd.Env, c.env)
		}
		cmd.Stderr = &stderr
		cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != c.status || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s %s: exit status %d, %q; want %d, %q", c.args, c.env, code, stderr.String(), c.status, c.want)
		}
	}
}

// TestPullInterrupted: SIGINT ends a pull with a state that the same command goes on from, and says so.
func TestPullInterrupted(t *testing.T) {
	var s *pulltest.Server
	s, address := pullServer(t, func(r *http.Request) pulltest.Fault {
		if strings.Contains(r.URL.Path, "/resolve/") {
			return pulltest.Slow(1000, 20*time.Millisecond)
		}
		return nil
	})
	dir := t.TempDir()
	path := filepath.Join(dir, "hf.co/owner/name/name-Q4_K_M.gguf")
	var stderr bytes.Buffer
	cmd := pulling(t, address, dir, "hf.co/owner/name")
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the first bytes are on the disk", func() bool {
		b, err := os.ReadFile(path + ".state")
		return err == nil && bytes.Contains(b, []byte(`"spans":[[`))
	})
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(stderr.String(),
		"are kept; the same command goes on from there\n") {
		t.Errorf("exit status %d, %q", code, stderr.String())
	}
	s.Change(func() { s.Fault = nil })
	stderr.Reset()
	cmd = pulling(t, address, dir, "hf.co/owner/name")
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil || !strings.Contains(stderr.String(), "of 293 KiB are here already\n") {
		t.Errorf("%v %q", err, stderr.String())
	}
	if r, err := pull.ReadRecord(path); err != nil || r.Name != "hf.co/owner/name:Q4_K_M" {
		t.Errorf("%+v %v", r, err)
	}
}
