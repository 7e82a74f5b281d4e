package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGPUCheckPack: the folder to carry has what its script needs, which then runs without the checkout: on the models
// in the folder, with the sources in it, and builds a back end only where there is none.
func TestGPUCheckPack(t *testing.T) {
	dir := t.TempDir()
	bin, packed, tree := filepath.Join(dir, "bin"), filepath.Join(dir, "packed"), filepath.Join(dir, "tree")
	for _, name := range []string{"uma-serve", "uma-cli", "llama-server"} {
		program(t, filepath.Join(bin, name), "exit 1")
	}
	program(t, filepath.Join(bin, "uma-bench"), `echo "ENGINE=$ENGINE"; for a in "$@"; do echo "$a"; done`)
	llamaTree(t, tree, "0.6.1", "", "")
	model := filepath.Join(dir, "some.gguf")
	if err := os.WriteFile(model, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(script string, env []string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), script, args...)
		cmd.Env = append(os.Environ(), append([]string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache"), "HOME=" + dir,
			"ENGINE=", "BIN=", "LLAMA_SERVER=", "MODELS=", "CUDA_PATH=/nonexistent"}, env...)...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	pack := []string{"BIN=" + bin, "LLAMA_SERVER=" + filepath.Join(bin, "llama-server"), "ENGINE=" + tree,
		"MODELS=" + model}
	if out, err := run("./gpu-check.sh", append(pack, "MAX_MB=0"), "--pack", filepath.Join(dir, "large")); err == nil ||
		!strings.Contains(out, "more than MAX_MB=0") {
		t.Errorf("a folder that is too large: %v\n%s", err, out)
	}
	if out, err := run("./gpu-check.sh", pack, "--pack", packed); err != nil || !strings.Contains(out, "packed has ") {
		t.Fatalf("%v\n%s", err, out)
	}
	script := filepath.Join(packed, "scripts/gpu-check.sh")
	in := func(name string) string { return filepath.Join(packed, name) }
	common := "gpu-check\n" + filepath.Join(dir, "out") + "\n" + in("models/some.gguf") + "\n" +
		in("models/uma-tiny.gguf") + "\n--backend\n"
	beside := "\n--llama-server\n" + in("bin/llama-server") + "\n--limit\n"
	for name, c := range map[string]struct {
		env       []string
		args      []string
		want, not string
	}{
		"processor": {[]string{"BACKEND=cpu"}, nil, "ENGINE=" + in("engine.tar.gz") + "\n" + common + "cpu" +
			beside + "470s\n", "--build"},
		"cuda": {nil, nil, common + "cuda\n--build\n" + in("scripts/backend.sh") + " cuda " + in("bin"), ""},
		"given model and limits": {[]string{"BACKEND=cpu", "LIMIT=3m", "STEP_LIMIT=9s", "ARGS=--prompts 2"},
			[]string{model}, model + "\n--backend\ncpu" + beside + "3m\n--step-limit\n9s\n--prompts\n2\n", "uma-tiny"},
	} {
		out, err := run(script, c.env, append([]string{filepath.Join(dir, "out")}, c.args...)...)
		if err != nil || !strings.Contains(out, c.want) || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, out, c.want)
		}
	}
	// A library that was carried is used on a card of its architecture alone.
	if err := os.WriteFile(in("bin/libggml-cuda.so"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(dir, "tools/ldd"), "echo not a dynamic executable")
	program(t, filepath.Join(dir, "tools/nvidia-smi"), "echo 9.0")
	for _, c := range []struct {
		architectures string
		built         bool
	}{{"90\n", false}, {"75;90\n", false}, {"86;89\n", true}, {"900\n", true}} {
		if err := os.WriteFile(in("bin/libggml-cuda.architectures"), []byte(c.architectures), 0o600); err != nil {
			t.Fatal(err)
		}
		path := "PATH=" + filepath.Join(dir, "tools") + ":" + os.Getenv("PATH")
		out, err := run(script, []string{path}, filepath.Join(dir, "out"))
		if err != nil || strings.Contains(out, "--build") != c.built {
			t.Errorf("for %q: %v\n%s", c.architectures, err, out)
		}
	}
	// The sources in the folder are those that a back end is built from.
	cmd := exec.CommandContext(t.Context(), "bash", in("scripts/engine-fetch.sh"), in("engine.tar.gz"))
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	fetched, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	sum := func(tree string) string {
		out, err := exec.CommandContext(t.Context(), "./engine-sum.sh", tree).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got, want := sum(strings.TrimSpace(string(fetched))), sum(tree); got != want {
		t.Errorf("the sum of the sources is %s, want %s", got, want)
	}
	out, err := run(script, []string{"BIN=" + dir}, "out")
	if err == nil || !strings.Contains(out, "are expected in "+dir) {
		t.Errorf("without programs: %v\n%s", err, out)
	}
}
