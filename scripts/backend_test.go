package scripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// program writes an executable shell script.
func program(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
		os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
}

// TestBackendNeeds: a missing tool is named before anything is fetched or built, with what installs it.
func TestBackendNeeds(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("back ends as libraries are Linux's")
	}
	for _, c := range []struct{ name, tools, want string }{
		{"cuda", "", "make backend-cuda: cmake is missing; Debian: apt install cmake"},
		{"vulkan", "cmake", "make backend-vulkan: make is missing; Debian: apt install make"},
		{"cuda", "cmake make", "c++ is missing; Debian: apt install g++"},
		{"cuda", "cmake make c++", "nvcc is missing; install the CUDA toolkit, 12 or later (Debian: apt install"},
		{"vulkan", "cmake make c++", "glslc is missing; Debian: apt install glslc"},
		{"vulkan", "cmake make c++ glslc", "the header vulkan/vulkan.hpp is missing; Debian: apt install libvulkan"},
		{"opencl", "cmake make c++", "the back ends are cuda and vulkan"},
	} {
		dir := t.TempDir()
		for _, tool := range []string{"bash", "dirname", "uname", "cat"} {
			path, err := exec.LookPath(tool)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(path, filepath.Join(dir, tool)); err != nil {
				t.Fatal(err)
			}
		}
		for tool := range strings.FieldsSeq(c.tools) {
			program(t, filepath.Join(dir, tool), "exit 1")
		}
		cmd := exec.CommandContext(t.Context(), "bash", "./backend.sh", c.name, t.TempDir())
		cmd.Env = []string{"PATH=" + dir, "CUDA_PATH=/nonexistent", "HOME=" + t.TempDir()}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s with %q: %v\n%s\nwant %q", c.name, c.tools, err, out, c.want)
		}
	}
}

// llamaTree is the part of a llama.cpp tree that a change of the lock reads.
func llamaTree(t *testing.T, dir, version, header, archs string) {
	t.Helper()
	n := strings.Split(version, ".")
	for name, text := range map[string]string{
		"CMakeLists.txt": "set(LLAMA_VERSION_MAJOR " + n[0] + ")\nset(LLAMA_VERSION_MINOR " + n[1] +
			")\nset(LLAMA_VERSION_PATCH " + n[2] + ")\noption(LLAMA_BUILD_IS_DEV \"llama: dev build\" ON)\n",
		"include/llama.h":     header,
		"src/llama-arch.cpp":  archs,
		"ggml/CMakeLists.txt": "",
		"cmake/x.cmake":       "",
	} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
}

const bumpChangelog = `# Changelog

## [Unreleased]

- feat: update llama.cpp to ggml-org/llama.cpp@ffffffff0

## [1.1.0]

- fix(server): something else
- feat: update llama.cpp to ggml-org/llama.cpp@abcdef012
- feat: update llama.cpp to ggml-org/llama.cpp@111111111

## [1.0.0]

- feat: update llama.cpp to ggml-org/llama.cpp@000000000
`

// TestEngineBump: a change of the lock says what changed, and is taken back where the build or a test fails. The
// registry and make are fakes.
func TestEngineBump(t *testing.T) {
	const old = "llama_cpp=0.5.0-dev\ncommit=0000000000000000000000000000000000000000\n" +
		"repository=https://github.com/ggml-org/llama.cpp\npackage=llama-cpp-python\npackage_version=1.0.0\n" +
		"archive=llama_cpp_python-1.0.0.tar.gz\nsha256=SUM\nfolder=llama_cpp_python-1.0.0/vendor/llama.cpp\n"
	for name, c := range map[string]struct {
		args  []string
		fails string // the goal at which make fails
		want  []string
		kept  bool // engine.lock names the new version afterwards
	}{
		"green": {[]string{"1.1.0"}, "", []string{"== llama-cpp-python 1.1.0: llama.cpp 0.6.1-dev (abcdef012",
			"llama.h names: 3 before, 3 now\ncame: llama_new\nwent: llama_gone",
			"-LLAMA_API int llama_gone(int a);\n+LLAMA_API int llama_new(int a);",
			"architectures: 2 before, 3 now\ncame: gemma9 qwen9\nwent: rwkv0",
			"make build VERSION= ENGINE=", "left out: attention", "make engine-check", "engine-check is green"}, true},
		// All digits of the commit stay, so that nothing is compiled again.
		"the same": {[]string{"1.0.0"}, "", []string{"llama.cpp 0.5.0-dev (" + strings.Repeat("0", 40) + ")",
			"engine-check is green"}, false},
		"only the lock": {[]string{"--lock-only", "1.1.0"}, "build", []string{"came: gemma9 qwen9"}, true},
		"build fails": {[]string{"1.1.0"}, "build",
			[]string{"engine.lock is what it was: llama-cpp-python 1.0"}, false},
		"a test fails": {[]string{"1.1.0"}, "engine-check",
			[]string{"left out: attention", "is what it was"}, false},
		"failure is kept": {[]string{"--keep", "1.1.0"}, "build",
			[]string{"engine.lock names llama-cpp-python 1.1.0"}, true},
		"no such version": {[]string{"7.7.7"}, "", []string{"pip could not fetch llama-cpp-python 7.7.7",
			"the registry has 1.1.0, 1.0.0"}, false},
		"too old":      {[]string{"0.9.0"}, "", []string{"names no commit of llama.cpp"}, false},
		"no version":   {nil, "", []string{"make engine-bump VERSION=0.3.36"}, false},
		"not a number": {[]string{"7733dca-dirty"}, "", []string{"make engine-bump VERSION=0.3.36"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "scripts"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{"bump", "changes", "facts", "fetch", "pip", "sum"} {
				from := "engine-" + f + ".sh"
				if err := os.WriteFile(filepath.Join(dir, "scripts", from), []byte(read(t, from)), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for version, tree := range map[string][3]string{
				"0.9.0": {"0.4.0", "void llama_a(void);", ""},
				"1.0.0": {"0.5.0", "void llama_a(void);\nvoid llama_b(void);\n\nLLAMA_API int llama_gone(int a);\n",
					"    { LLM_ARCH_LLAMA, \"llama\" },\n    { LLM_ARCH_RWKV0, \"rwkv0\" },\n"},
				"1.1.0": {"0.6.1", "void llama_a(void);\n// x\nvoid llama_b(void);\nLLAMA_API int llama_new(int a);\n",
					"    { LLM_ARCH_LLAMA, \"llama\" },\n    { LLM_ARCH_QWEN9,    \"qwen9\" },\n" +
						"    {LLM_ARCH_GEMMA9, \"gemma9\"},\n"},
			} {
				root := "llama_cpp_python-" + version
				llamaTree(t, filepath.Join(dir, "registry", root, "vendor/llama.cpp"), tree[0], tree[1], tree[2])
				changes := filepath.Join(dir, "registry", root, "CHANGELOG.md")
				if err := os.WriteFile(changes, []byte(bumpChangelog), 0o600); err != nil {
					t.Fatal(err)
				}
				tar := exec.CommandContext(t.Context(), "tar", "-C", filepath.Join(dir, "registry"), "-czf",
					filepath.Join(dir, "registry", root+".tar.gz"), root)
				if out, err := tar.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			sum, err := exec.CommandContext(t.Context(), "sha256sum",
				filepath.Join(dir, "registry/llama_cpp_python-1.0.0.tar.gz")).Output()
			if err != nil {
				t.Skip("sha256sum is missing: ", err)
			}
			lock := strings.Replace(old, "SUM", string(sum[:64]), 1)
			if err := os.WriteFile(filepath.Join(dir, "engine.lock"), []byte(lock), 0o600); err != nil {
				t.Fatal(err)
			}
			// pip knows the three versions; make says what it was asked for.
			program(t, filepath.Join(dir, "tools/python"), `case "$*" in
*" download "*)
	while [ $# -gt 0 ]; do
		case $1 in -d) to=$2 ;; -r) of=$2 ;; esac
		shift
	done
	version=$(sed 's/.*==\([0-9.]*\).*/\1/' "$of")
	cp "`+dir+`/registry/llama_cpp_python-$version.tar.gz" "$to" ;;
*" index versions "*) echo "Available versions: 1.1.0, 1.0.0, 0.9.0" ;;
esac`)
			program(t, filepath.Join(dir, "tools/make"), `echo "make $1 VERSION=$VERSION ENGINE=$ENGINE"
[ "$1" != "`+c.fails+`" ] || exit 2
[ "$*" != "-s env" ] || echo 'export ENGINE_TAGS="llama_engine,llama_no_attention"'`)
			program(t, filepath.Join(dir, "tools/curl"), "exit 22")
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/engine-bump.sh"), c.args...)
			cmd.Env = append(os.Environ(), "PYTHON="+filepath.Join(dir, "tools/python"), "VERSION=1.1.0", "ENGINE=x",
				"MAKE="+filepath.Join(dir, "tools/make"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"),
				"PATH="+filepath.Join(dir, "tools")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if green := name == "green" || name == "only the lock" || name == "the same"; (err == nil) != green {
				t.Errorf("%v\n%s", err, out)
			}
			for _, w := range c.want {
				if !strings.Contains(string(out), w) {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
			got := read(t, filepath.Join(dir, "engine.lock"))
			if !c.kept && got != lock {
				t.Errorf("engine.lock has changed:\n%s", got)
			}
			if c.kept {
				sum, err := exec.CommandContext(t.Context(), "sha256sum",
					filepath.Join(dir, "registry/llama_cpp_python-1.1.0.tar.gz")).Output()
				if err != nil {
					t.Fatal(err)
				}
				want := "llama_cpp=0.6.1-dev\ncommit=abcdef012\nrepository=https://github.com/ggml-org/llama.cpp\n" +
					"package=llama-cpp-python\npackage_version=1.1.0\narchive=llama_cpp_python-1.1.0.tar.gz\nsha256=" +
					string(sum[:64]) + "\nfolder=llama_cpp_python-1.1.0/vendor/llama.cpp\n"
				if got != want {
					t.Errorf("engine.lock is\n%s\nwant\n%s", got, want)
				}
			}
		})
	}
}
