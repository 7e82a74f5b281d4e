//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// TestMain lets the test binary open the files named in an environment variable and print each result, so that a test
// can tell an error from a crash and read stderr.
func TestMain(m *testing.M) {
	if list := os.Getenv("UMA_TEST_OPEN"); list != "" {
		for path := range strings.SplitSeq(list, ":") {
			fmt.Print(filepath.Base(path), " ")
			e, err := Open(runtime.Options{ModelPath: path, ContextTokens: 256, Threads: testThreads})
			switch {
			case err == nil:
				fmt.Println("opened")
				e.Close()
			case errors.Is(err, runtime.ErrModel):
				fmt.Println("ErrModel", err)
			default:
				fmt.Println("another error:", err)
			}
		}
		os.Exit(0)
	}
	if os.Getenv("UMA_TEST_USE") != "" {
		useAll()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// openInChild opens the files in a child process and returns its report, a line for each.
func openInChild(t *testing.T, paths []string) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "UMA_TEST_OPEN="+strings.Join(paths, ":"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("opening crashed: %v after\n%s\n%s", err, out, stderr.Bytes()[:min(stderr.Len(), 4096)])
	}
	if stderr.Len() > 0 {
		t.Errorf("something reached stderr: %s", stderr.Bytes()[:min(stderr.Len(), 4096)])
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// TestDamagedFiles: a truncated file is refused wherever it ends, one with a flipped bit in its header is refused or
// opened; neither ends the process, and nothing is printed on the way.
func TestDamagedFiles(t *testing.T) {
	whole, err := os.ReadFile(model(t, ggufgen.Tiny()))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var paths []string
	add := func(name string, b []byte) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	for n := 0; n < len(whole); n += 1 + n/5 {
		add(fmt.Sprintf("truncated-%d", n), whole[:n])
	}
	add("truncated-last", whole[:len(whole)-1])
	r := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		at, bit := 4+r.IntN(16_000), r.IntN(8)
		b := bytes.Clone(whole)
		b[at] ^= 1 << bit
		add(fmt.Sprintf("flipped-%d.%d", at, bit), b)
	}
	add("whole", whole)
	report := openInChild(t, paths)
	if len(report) != len(paths) {
		t.Fatalf("%d reports for %d files", len(report), len(paths))
	}
	for _, line := range report {
		name, what, _ := strings.Cut(line, " ")
		opened := what == "opened"
		switch {
		case !opened && !strings.HasPrefix(what, "ErrModel "),
			strings.HasPrefix(name, "truncated") && opened,
			name == "whole" && !opened:
			t.Errorf("%s: %s", name, what)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tiny := model(t, ggufgen.Tiny())
	whole, err := os.ReadFile(tiny)
	if err != nil {
		t.Fatal(err)
	}
	other := write("other.gguf", bytes.ReplaceAll(whole, []byte("llama"), []byte("qwerz")))
	for _, c := range []struct {
		name string
		o    runtime.Options
		want string // in the error
		is   error
	}{
		{"no name", runtime.Options{}, "no file is named", runtime.ErrModel},
		{"missing", runtime.Options{ModelPath: filepath.Join(dir, "none.gguf")}, "no such file", runtime.ErrModel},
		{"directory", runtime.Options{ModelPath: dir}, "is a directory", runtime.ErrModel},
		{"empty", runtime.Options{ModelPath: write("empty", nil)}, "truncated", runtime.ErrModel},
		{"text", runtime.Options{ModelPath: write("text", []byte("version https://git-lfs.github.com/spec/v1\n"))},
			"GGUF", runtime.ErrModel},
		{"architecture", runtime.Options{ModelPath: other}, "unknown model architecture: 'qwerz'", runtime.ErrModel},
		{"KV type", runtime.Options{ModelPath: tiny, KVTypeK: "f17"}, `KV type for K is "f17", want one of f16, f32`,
			nil},
		{"flash attention", runtime.Options{ModelPath: tiny, FlashAttn: "maybe"},
			`flash attention is "maybe", want auto, on or off`, nil},
		{"quantised V", runtime.Options{ModelPath: tiny, FlashAttn: "off", KVTypeV: "q8_0"},
			"requires flash_attn", nil},
		{"sequences", runtime.Options{ModelPath: tiny, Sequences: 257}, "sequences is 257, want 0 … 256", nil},
		{"batch", runtime.Options{ModelPath: tiny, Batch: -1}, "batch is -1", nil},
		{"GPU layers", runtime.Options{ModelPath: tiny, GPULayers: -2}, "GPU layers is -2", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := Open(c.o)
			if err == nil {
				e.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error is %q, want %q in it", err, c.want)
			}
		})
	}
}
