//go:build cgo && (llama_engine || llama_system) && unix

package smoke

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// refused runs the daemon on a model that it cannot serve and returns what it says. It must end by itself, with status
// 1.
func refused(t *testing.T, model string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "uma-serve"), "-m", model, "--socket",
		filepath.Join(t.TempDir(), "s"), "-t", "2")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%s: %v\n%.2000s", model, err, out)
	}
	return string(out)
}

// TestModelThatIsNoFile: -m takes a regular file. Anything else is refused at once, by name.
func TestModelThatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo, socket := filepath.Join(dir, "fifo.gguf"), filepath.Join(dir, "socket.gguf")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for path, want := range map[string]string{fifo: "it is a named pipe", socket: "it is a socket",
		"/dev/zero": "it is a device", dir: "it is a directory"} {
		if said := refused(t, path); !strings.Contains(said, path) || !strings.Contains(said, want) {
			t.Errorf("%s: %s", path, said)
		}
	}
}

// TestModelWithANegativeEpsilon: the built daemon refuses it in a sentence.
func TestModelWithANegativeEpsilon(t *testing.T) {
	b, err := os.ReadFile(ggufgen.Cached(t, ggufgen.Tiny()))
	if err != nil {
		t.Fatal(err)
	}
	const key = "llama.attention.layer_norm_rms_epsilon"
	at := strings.Index(string(b), key) + len(key) + 4
	for _, eps := range []float32{-1e-5, float32(math.NaN())} {
		binary.LittleEndian.PutUint32(b[at:], math.Float32bits(eps))
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if said := refused(t, path); !strings.Contains(said, key+" is ") || strings.Contains(said, "goroutine") {
			t.Errorf("%v: %s", eps, said)
		}
	}
}
