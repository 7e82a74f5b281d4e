package scripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeviceCheck: the contract is run with the engine, also without make around it; tests that were not built, or that
// fail, fail the check.
func TestDeviceCheck(t *testing.T) {
	dir := t.TempDir()
	bin, tools := filepath.Join(dir, "bin"), filepath.Join(dir, "tools")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "libggml-vulkan.so"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(bin, "uma-serve"), `echo "$DEVICES"`)
	program(t, filepath.Join(bin, "uma-bench"), `echo "bench $*"`)
	program(t, filepath.Join(tools, "ldd"), "exit 0")
	program(t, filepath.Join(tools, "make"), `echo 'export GOFLAGS=-tags=llama_engine'`)
	program(t, filepath.Join(tools, "go"), `if [ "$1" = env ]; then echo "${GOFLAGS:-}"; exit; fi
echo "layers $UMA_TEST_GPU_LAYERS, GOFLAGS $GOFLAGS, CGO_ENABLED $CGO_ENABLED"
echo "$*, probe of ${UMA_TEST_PROBE_MODELS:-none}"
echo "$TESTS"
exit "$STATUS"`)
	// Published models of no bytes.
	lock, models := filepath.Join(dir, "models.lock"), filepath.Join(dir, "uma-serve", "models")
	if err := os.MkdirAll(models, 0o755); err != nil {
		t.Fatal(err)
	}
	var locked strings.Builder
	for _, name := range []string{"smollm2-135m", "qwen2.5-coder-0.5b", "gemma-3-270m"} {
		fmt.Fprintf(&locked, "model %s %s.gguf 0 0 none\n", name, name)
		if err := os.WriteFile(filepath.Join(models, name+".gguf"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(lock, []byte(locked.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	llvmpipe := func(version string) string {
		return `{"devices":[{"description":"llvmpipe (LLVM ` + version + `, 256 bits)","backend":"Vulkan"}]}`
	}
	const vulkan = `{"devices":[{"backend":"Vulkan"}]}`
	for name, c := range map[string]struct {
		flags, devices, tests, status string
		fails                         bool
		want                          []string
	}{
		"without make": {"", vulkan, "ok", "0", false, []string{"layers -1, GOFLAGS -tags=llama_engine, CGO_ENABLED 1",
			"layers 2, ", "layers 0, ", "TestGraphProbe.*)$ ./runtime/llama", "TestDevice.*)$ ./smoke",
			"./smoke, probe of smollm2-135m", "./smoke, probe of gemma-3-270m", "uma-tiny.gguf --backend vulkan",
			"smollm2-135m.gguf --backend vulkan", "qwen2.5-coder-0.5b.gguf --backend vulkan",
			"gemma-3-270m.gguf --backend vulkan"}},
		"by make":  {"-tags=llama_system", vulkan, "ok", "0", false, []string{"GOFLAGS -tags=llama_system"}},
		"no tests": {"", vulkan, "ok x 0.01s [no tests to run]", "0", true, []string{"without the engine"}},
		"tests that fail": {"", vulkan, "FAIL", "1", true, []string{
			"layers 0, ", "--backend vulkan", "== FAILED, "}},
		"no device":          {"", "{}", "ok", "0", true, []string{"there is no Vulkan device"}},
		"none, if possible":  {"", "{}", "IF_POSSIBLE", "0", false, []string{"there is no Vulkan device"}},
		"an old Mesa":        {"", llvmpipe("15.0.6"), "1.1.230", "0", true, []string{"llvmpipe damages the heap"}},
		"built with LLVM 15": {"", llvmpipe("15.0.6"), "1.4.305", "0", false, []string{"--backend vulkan", "--light"}},
		"a new Mesa": {"", llvmpipe("19.1.7"), "ok", "0", false, []string{"--backend vulkan", "--light",
			"== all passed, "}},
		"no models": {"", vulkan, "ok", "0", true, []string{"uma-tiny.gguf --backend vulkan",
			"not examined: gemma-3-270m: false has no pip", "== FAILED, "}},
		"no models, if possible": {"", vulkan, "IF_POSSIBLE", "0", false, []string{
			"not examined: qwen2.5-coder-0.5b: false has no pip", "== all passed, but for the models named above, "}},
		"short": {"", llvmpipe("19.1.7"), "ok", "0", false, []string{"layers -1, ", "layers 0, ",
			"TestDevice.*)$ ./smoke", "--backend vulkan", "== all passed, "}},
	} {
		manifest := filepath.Join(dir, "lvp_icd.json") // of the version that the tests' output is
		if err := os.WriteFile(manifest, []byte(`{"ICD": {"api_version": "`+c.tests+`"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "./device-check.sh", filepath.Join(dir, "out"))
		cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CACHE_HOME="+dir,
			"BIN="+bin, "GOFLAGS="+c.flags, "CGO_ENABLED=0", "DEVICES="+c.devices, "TESTS="+c.tests,
			"STATUS="+c.status, "LLAMA_SERVER=", "GGML_VK_VISIBLE_DEVICES=",
			"LLVMPIPE_MANIFEST="+manifest, "MODELS_LOCK="+lock, "PYTHON=false", "BACKENDS="+bin)
		if strings.HasPrefix(name, "no models") {
			cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+filepath.Join(dir, "empty"))
		}
		if c.tests == "IF_POSSIBLE" {
			cmd.Env = append(cmd.Env, "IF_POSSIBLE=1")
		}
		if name == "short" {
			cmd.Env = append(cmd.Env, "SHORT=1")
		}
		out, err := cmd.CombinedOutput()
		if (err != nil) != c.fails {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if name == "short" && strings.Contains(string(out), "smollm2") {
			t.Errorf("%s: a published model is examined: %s", name, out)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: no %q in %s", name, want, out)
			}
		}
	}
}
