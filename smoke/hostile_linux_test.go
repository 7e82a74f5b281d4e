//go:build cgo && (llama_engine || llama_system)

package smoke

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/daemonproc"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// attack is a library that replaces fopen, with which the engine opens the model: there it does what code does that a
// model file has brought into the process, on the engine's own thread.
const attack = `
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <unistd.h>

static void attack(void) {
	static int once;
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2 || once++) return; /* the front, or before the sandbox */
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0x7f000001)};
	char *argv[] = {"/bin/true", NULL};
	struct { const char *what; int result; } tried[] = {
		{"execve", execve(argv[0], argv, NULL)},
		{"socket", socket(AF_INET, SOCK_STREAM, 0)},
		{"connect", connect(0, (struct sockaddr *)&to, sizeof to)},
		{"read", open("/etc/passwd", O_RDONLY)},
		{"model", open(getenv("HOSTILE_OTHER"), O_RDONLY)},
		{"write", open(getenv("HOSTILE_WRITE"), O_WRONLY | O_CREAT, 0600)},
		{"kill", kill(getppid(), 0)},
		{"ptrace", (int)ptrace(PTRACE_ATTACH, getppid(), 0, 0)},
	};
	for (unsigned i = 0; i < sizeof tried / sizeof *tried; i++)
		fprintf(stderr, "attack: %s %s\n", tried[i].what, tried[i].result < 0 ? "refused" : "SUCCEEDED");
}

FILE *fopen(const char *path, const char *mode) {
	attack();
	return ((FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, "fopen"))(path, mode);
}

FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }
`

// TestAttackFromTheEngineIsRefusedAndLogged: code within the engine of a real engine process tries to start a program,
// to connect, to open other files and to reach its front. All of it is refused, the daemon's log names the call and the
// model, and the model answers.
func TestAttackFromTheEngineIsRefusedAndLogged(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "attack.c"), filepath.Join(dir, "attack.so")
	if err := os.WriteFile(source, []byte(attack), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-o", library, source, "-ldl").
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	other, written := filepath.Join(dir, "other.gguf"), filepath.Join(dir, "written")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := daemonproc.Start(filepath.Join(bin, "uma-serve"), waitfor.Limit,
		[]string{"LD_PRELOAD=" + library, "HOSTILE_OTHER=" + other, "HOSTILE_WRITE=" + written}, "-m",
		ggufgen.Cached(t, ggufgen.Tiny()), "-t", "1")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Proc: p, t: t}
	t.Cleanup(func() {
		if err := p.Stop(waitfor.Limit); err != nil || t.Failed() {
			t.Errorf("%v\n%s", err, p.Log())
		}
	})
	if box := s.info().Models[0].Info.Sandbox; box == nil || !box.Seccomp || box.Landlock == 0 {
		t.Skipf("the kernel confines too little: %+v", box)
	}
	c := s.dial()
	defer c.Close()
	c.request(`{"id":"a","prompt":"hello","max_tokens":3,"ignore_eos":true}`)
	c.mustEnd("a", wire.Length)

	pids, err := s.Processes()
	if err != nil || len(pids) != 2 {
		t.Fatalf("%v, %v", pids, err)
	}
	log := p.Log()
	for _, what := range []string{"execve", "socket", "connect", "read", "model", "write", "kill", "ptrace"} {
		if !strings.Contains(log, "attack: "+what+" refused") {
			t.Errorf("%s was not refused", what)
		}
	}
	name := s.info().Models[0].Name
	for _, call := range []string{"execve", "socket", "connect", "openat of /etc/passwd", "openat of " + other,
		"openat of " + written, "kill", "ptrace"} {
		if line := fmt.Sprintf(`"an engine process was refused %s" model=%s pid=%d`, call, name, pids[1]); !strings.
			Contains(log, line) {
			t.Errorf("the log lacks %s", line)
		}
	}
	if _, err := os.Stat(written); err == nil {
		t.Error("the file was made")
	}
	if n := s.samples()["uma_front_model_denied_total"]; n < 8 {
		t.Errorf("%v refused calls are counted", n)
	}
}
