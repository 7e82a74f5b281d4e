//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackendRefused: a library that does not fit is not used, and the log says why.
func TestBackendRefused(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler makes the libraries: ", err)
	}
	for name, c := range map[string]struct{ source, want string }{
		"no library":  {"", "file too short"},
		"no back end": {"int something;", "failed to find ggml_backend_init"},
		"another interface": {"int reg[64] = {999}; void * ggml_backend_init(void) { return reg; }",
			"incompatible API version (backend: 999"},
		"without a device": {"void * ggml_backend_init(void) { return 0; }", "ggml_backend_init returned NULL"},
		"another llama.cpp": {"unsigned long long uma_backend_sources = 1; " +
			"void * ggml_backend_init(void) { __builtin_trap(); }", "built from another llama.cpp than this uma-serve"},
		"a missing library": {"void absent(void); void * ggml_backend_init(void) { absent(); return 0; }",
			"undefined symbol: absent"},
	} {
		library := filepath.Join(t.TempDir(), "libggml-test.so")
		if c.source == "" {
			err = os.WriteFile(library, nil, 0o600)
		} else {
			cmd := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-w", "-x", "c", "-o", library, "-")
			cmd.Stdin = strings.NewReader(c.source)
			err = cmd.Run()
		}
		if err != nil {
			t.Fatal(err)
		}
		if log := loadLog(library); !strings.Contains(log, c.want) {
			t.Errorf("%s: no %q in\n%s", name, c.want, log)
		}
	}
}

// loadLog is the log while a library is loaded.
func loadLog(library string) string {
	DrainLogs()
	var log bytes.Buffer
	SetLogger(slog.New(slog.NewTextHandler(&log, nil)))
	loadBackend(library)
	DrainLogs()
	SetLogger(nil)
	return log.String()
}

// TestBackendThrows: an exception of a library, which has another unwinder than a static binary, is an error and does
// not end the process. ggml-vulkan throws at a device that lacks what it needs.
func TestBackendThrows(t *testing.T) {
	cxx, err := exec.LookPath("c++")
	if err != nil {
		t.Skip("no C++ compiler makes the library: ", err)
	}
	library := filepath.Join(t.TempDir(), "libggml-test.so")
	cmd := exec.CommandContext(t.Context(), cxx, "-shared", "-fPIC", "-x", "c++", "-o", library, "-")
	cmd.Stdin = strings.NewReader(`#include <stdexcept>
#include <string>
extern "C" void * ggml_backend_init() {
    std::string name("a variable to destroy on the way");
    if (name.size() > 1) throw std::runtime_error("the device lacks 16-bit storage");
    return nullptr;
}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if log := loadLog(library); !strings.Contains(log, "the device lacks 16-bit storage") {
		t.Errorf("the log has no reason:\n%s", log)
	}
}
