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

// TestBackendCheck: the back end of CHECK=1 has the shaders that scripts/backend/glslc-check lists. The list may name
// none that the tree has not, and in place of the others is a header of SPIR-V, behind which ggml can insert
// instructions: with fewer words it damages the heap.
func TestBackendCheck(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("back ends as libraries are Linux's")
	}
	// cmake compiles the shaders of SHADERS, as ggml's build does, when it is asked to build.
	const cmake = `case $1 in
-S)
	echo "$*" | tr ' ' '\n' | sed -n 's/^-DVulkan_GLSLC_EXECUTABLE=//p' >"$4/glslc"
	exit
	;;
esac
to=$2/ggml/src/ggml-vulkan/vulkan-shaders.spv
mkdir -p "$to" "$2/lib"
touch "$2/lib/libggml-vulkan.so"
for name in $SHADERS; do
	"$(cat "$2/glslc")" -O -o "$to/$name.spv" -MF "$to/$name.d" || exit
done`
	const glslc = `output=''
for argument; do
	[ "$previous" != -o ] || output=$argument
	previous=$argument
done
[ -z "$output" ] || echo "compiled: $*" >"$output"`
	const header = "\x03\x02\x23\x07\x00\x00\x01\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"
	list, err := exec.CommandContext(t.Context(), "backend/glslc-check", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	// A shader for each pattern.
	all := strings.NewReplacer("*", "", "[13][62]", "16", "\n", " ").Replace(string(list))
	for name, c := range map[string]struct{ shaders, want string }{
		"all": {all + " mul_mat_vec_q4_k_f32_f32", ""},
		"one has another name": {strings.Replace(all, "fa_mask_opt", "fa_mask_other", 1),
			"glslc-check names fa_mask_opt, but this llama.cpp has no shader of that name"},
	} {
		dir := t.TempDir()
		for _, file := range []string{"scripts/backend.sh", "scripts/backend/glslc-check",
			"scripts/backend/glslc-rolled", "scripts/engine-fetch.sh", "scripts/engine-sum.sh", "engine.lock"} {
			to := filepath.Join(dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700),
				os.WriteFile(to, []byte(read(t, "..", file)), 0o700)); err != nil {
				t.Fatal(err)
			}
		}
		llamaTree(t, filepath.Join(dir, "tree"), "0.5.0", "", "")
		program(t, filepath.Join(dir, "tools/cmake"), cmake)
		program(t, filepath.Join(dir, "tools/glslc"), glslc)
		for _, tool := range []string{"make", "c++"} {
			program(t, filepath.Join(dir, "tools", tool), "cat >/dev/null") // or who gives it a text gets SIGPIPE
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts/backend.sh"), "vulkan",
			filepath.Join(dir, "bin"))
		cmd.Env = append(os.Environ(), "CHECK=1", "CXX=c++", "CMAKE=cmake", "CMAKE_ARGS=", "SHADERS="+c.shaders,
			"ENGINE="+filepath.Join(dir, "tree"), "PATH="+filepath.Join(dir, "tools")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if (err != nil) != (c.want != "") || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v: %s\nwant %q", name, err, out, c.want)
			continue
		}
		built, err := filepath.Glob(filepath.Join(dir, "build/engine/backend-vulkan-*/ggml/src/ggml-vulkan/*/*.spv"))
		if err != nil || len(built) < 2 {
			t.Fatalf("%s: %d shaders, %v: %s", name, len(built), err, out)
		}
		for _, path := range built {
			shader, words := filepath.Base(path), read(t, path)
			left := shader == "mul_mat_vec_q4_k_f32_f32.spv" || shader == "fa_mask_other.spv"
			if strings.HasPrefix(words, "compiled: ") == left || left && words != header {
				t.Errorf("%s: %s is %q", name, shader, words)
			}
		}
	}
}
