package scripts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/enginetree"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// runMake runs make in the repository, with none of the variables of a make that runs this test.
func runMake(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s"}, args...)...)
	cmd.Dir = ".."
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return strings.HasPrefix(name, "MAKE") || strings.HasPrefix(name, "CGO_") ||
			slices.Contains([]string{"MFLAGS", "ENGINE", "CMAKE_ARGS", "GOFLAGS", "ENGINE_TAGS"}, name)
	})
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestEngineRefuses: what cannot be built is refused before anything is, with what to do.
func TestEngineRefuses(t *testing.T) {
	tree := t.TempDir()
	for _, f := range []string{"include/llama.h", "ggml/CMakeLists.txt"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, f)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	blank := filepath.Join(t.TempDir(), "a tree")
	if err := os.CopyFS(blank, os.DirFS(tree)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"ENGINE=" + t.TempDir()}, "this is no llama.cpp source tree: include/llama.h"},
		{[]string{"ENGINE=" + tree, "CMAKE_ARGS=-DBUILD_SHARED_LIBS=ON"}, "linked statically"},
		{[]string{"ENGINE=" + tree, "CMAKE_ARGS=-DGGML_CPU_ALL_VARIANTS=ON"}, "linked statically"},
		{[]string{"ENGINE=" + blank}, "paths with blanks"},
	} {
		out, err := runMake(t, append(c.args, "env")...)
		if err == nil || !strings.Contains(out, "make ENGINE="+strings.TrimPrefix(c.args[0], "ENGINE=")+": ") ||
			!strings.Contains(out, c.want) || !strings.Contains(out, "llama.cpp is not built") {
			t.Errorf("make %q: %v\n%s", c.args, err, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), "./engine.sh", tree, "", "")
	cmd.Env = append(os.Environ(), "CMAKE=/nonexistent/cmake")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "apt install cmake") {
		t.Errorf("without cmake: %v\n%s", err, out)
	}
}

// TestEngineProbes: all parts fit the llama.cpp of engine.lock. A part does not fit a source with other members,
// signatures or layouts than it uses, and neither does a part that needs it.
func TestEngineProbes(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the kernels")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("the kernels are Linux's, on amd64 and arm64")
	}
	pinned, err := enginetree.Find()
	if err != nil {
		t.Skipf("NOT CHECKED: %v", err)
	}
	type edit struct{ file, old, new string }
	for name, c := range map[string]struct {
		edits []edit
		fit   string
	}{
		"pinned": {nil, "products attention positions -DUMA_CELLS_SHARED keep norms barrier grids repacked adapters " +
			"heads probe"},
		"each on its own": {[]edit{
			{"ggml/src/ggml-cpu/ops.h", "ggml_compute_forward_flash_attn_ext(const",
				"ggml_compute_forward_flash_attn_ext(int, const"},
			{"ggml/src/ggml-cpu/ops.h", "ggml_compute_forward_rope(const", "ggml_compute_forward_rope(int, const"},
			{"ggml/src/ggml-cpu/ggml-cpu.c", "    atomic_int n_graph;", "    int more; atomic_int n_graph;"},
			{"src/llama-model.h", "tensors_by_name;", "tensors_of_name;"},
			{"src/llama-context.h", "llama_adapter_loras_ptr loras;", "llama_adapter_loras_ptr adapters;"},
			{"src/llama-ext.h", "llama_set_embeddings_nextn(", "llama_set_embeddings_of_nextn("},
			{"src/llama-graph.h", "void build_sampling(", "void build_samplers("},
		}, "products keep grids"},
		"cells": {[]edit{{"src/llama-kv-cells.h", "std::vector<llama_pos> pos;", "std::vector<llama_pos> place;"}},
			"products attention keep norms barrier repacked adapters heads probe"},
		"products": {[]edit{{"ggml/src/ggml-cpu/traits.h", "virtual ~extra_buffer_type();",
			"virtual ~extra_buffer_type(); virtual int more() = 0;"}}, "barrier grids repacked adapters heads probe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := t.TempDir()
			for _, folder := range []string{"include", "src", "ggml"} {
				for _, e := range files(t, filepath.Join(pinned, folder)) {
					path, _, _ := strings.Cut(e, " ")
					rel, _ := filepath.Rel(pinned, path)
					link := filepath.Join(tree, rel)
					if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(path, link)); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, e := range c.edits {
				path := filepath.Join(tree, e.file)
				text := read(t, path)
				if !strings.Contains(text, e.old) {
					t.Fatalf("%s has no %q", e.file, e.old)
				}
				if err := errors.Join(os.Remove(path),
					os.WriteFile(path, []byte(strings.ReplaceAll(text, e.old, e.new)), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			var why strings.Builder
			cmd := exec.CommandContext(t.Context(), "./engine-probe.sh", tree, "-O1", "-DGGML_USE_LLAMAFILE "+
				"-DGGML_USE_CPU_REPACK -D_GNU_SOURCE")
			cmd.Stderr = &why
			out, err := cmd.Output()
			if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != c.fit {
				t.Errorf("%q fit, want %q (%v)\n%s", got, c.fit, err, why.String())
			}
		})
	}
}

// files lists the files below dir with their sizes and times.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" { // git status writes its index again
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		st, err := d.Info()
		if err == nil && st.Mode().IsRegular() {
			list = append(list, fmt.Sprint(path, " ", st.Size(), " ", st.ModTime()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// names returns the names by which a build may identify the tree: the sum of its sources, or its commit where they are
// unchanged.
func names(t *testing.T, tree string) (names []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "./engine-sum.sh", tree).Output()
	if err != nil {
		t.Fatal(err)
	}
	names = append(names, strings.TrimSpace(string(out)))
	for line := range strings.Lines(read(t, "../engine.lock")) {
		if commit, ok := strings.CutPrefix(line, "commit="); ok && strings.Contains(tree, "/uma-serve/engine/") {
			names = append(names, commit[:9])
		}
	}
	if out, err := exec.CommandContext(t.Context(), "git", "-C", tree, "rev-parse", "HEAD").Output(); err == nil {
		names = append(names, string(out[:9]))
	}
	return names
}

// TestEngineTree builds the daemon on the llama.cpp tree that ENGINE_TREE names. It answers; --version, info and
// the log say which llama.cpp it has and what is left out; the tree is as before.
func TestEngineTree(t *testing.T) {
	tree := os.Getenv("ENGINE_TREE")
	if tree == "" {
		t.Skip("make ENGINE=… is NOT CHECKED: ENGINE_TREE=/path/to/llama.cpp names a tree; make ENGINE=… " +
			"engine-check does")
	}
	before := files(t, tree)
	dir := t.TempDir()
	out, err := runMake(t, "ENGINE="+tree, "CMAKE_ARGS="+os.Getenv("CMAKE_ARGS"), "BIN="+dir, "uma-serve", "uma-cli")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after := files(t, tree); !slices.Equal(before, after) {
		t.Errorf("the build has changed the tree: %d files before, %d after", len(before), len(after))
	}
	var left []string // as make said
	if _, list, ok := strings.Cut(out, "does not fit this llama.cpp: "); ok {
		list, _, _ = strings.Cut(list, " (")
		left = strings.Split(list, ", ")
	}
	version, err := exec.CommandContext(t.Context(), filepath.Join(dir, "uma-serve"), "--version").Output()
	if err != nil || !slices.ContainsFunc(names(t, tree), func(name string) bool {
		return strings.Contains(string(version), name)
	}) {
		t.Errorf("--version: %s %v, want one of the names %q in it", version, err, names(t, tree))
	}
	serve := func(cfg ggufgen.Config) (*daemonproc.Proc, error) {
		return daemonproc.Start(filepath.Join(dir, "uma-serve"), waitfor.Limit, nil, "-m", ggufgen.Cached(t, cfg),
			"--ctx-size", "512", "--threads", "2")
	}
	answer := func(cfg ggufgen.Config) {
		p, err := serve(cfg)
		if err != nil {
			t.Errorf("%s: %v", cfg.Name, err)
			return
		}
		defer p.Stop(waitfor.Limit)
		cli := func(args ...string) string {
			said, err := exec.CommandContext(t.Context(), filepath.Join(dir, "uma-cli"),
				append([]string{"--socket", p.Socket}, args...)...).CombinedOutput()
			if err != nil {
				t.Errorf("%s: uma-cli %q: %v\n%s", cfg.Name, args, err, said)
			}
			return string(said)
		}
		var info reports.Info
		if err := json.Unmarshal([]byte(cli("info", "--json")), &info); err != nil || info.Capabilities == nil {
			t.Errorf("%s: info: %v", cfg.Name, err)
			return
		}
		if c := info.Capabilities; !slices.Equal(c.LeftOut, left) || c.EngineBuild != info.Engine ||
			!strings.Contains(string(version), info.Engine) || info.Model.Architecture != string(cfg.Arch) {
			t.Errorf("%s: info has engine %q, %q, left out %q, architecture %q; make left out %q, --version is %q",
				cfg.Name, info.Engine, c.EngineBuild, c.LeftOut, info.Model.Architecture, left, version)
		}
		text := cli("info")
		for _, part := range left {
			if !strings.Contains(text, part) || !strings.Contains(p.Log(), part) {
				t.Errorf("%s: %s is left out, but info or the log do not say so:\n%s\n%s", cfg.Name, part, text,
					p.Log())
			}
		}
		if said := cli("run", "--raw", "-n", "24", "--temperature", "0", "Once upon a time"); len(said) < 24 {
			t.Errorf("%s answers %q", cfg.Name, said)
		}
		t.Logf("%s answers on %s", cfg.Name, info.Engine)
	}
	answer(ggufgen.Tiny())
	answer(ggufgen.TinyMaincoder())
}
