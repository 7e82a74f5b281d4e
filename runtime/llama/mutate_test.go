//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/ggufmut"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// use loads and runs a file as the daemon does, and returns the result in one line.
func use(path string) string {
	e, err := Open(runtime.Options{ModelPath: path, ContextTokens: 256, Sequences: 4, Threads: 2})
	switch {
	case errors.Is(err, runtime.ErrModel):
		return "refused: " + err.Error()
	case err != nil:
		return "another error: " + err.Error()
	}
	defer e.Close()
	v := e.Vocab()
	tokens, err := v.Tokenize(nil, "Hello, world: 12 + 30 = <|im_end|> é\x00\xff\n\n  x", true, true)
	if err != nil {
		return "opened, no text: " + err.Error()
	}
	for len(tokens) < 40 {
		tokens = append(tokens, runtime.Token(len(tokens)%v.Size()))
	}
	for t := range min(v.Size(), 64) {
		_ = v.Piece(runtime.Token(t))
	}
	b := e.Batch()
	b.Reset()
	for i, t := range tokens {
		b.Add(t, runtime.Pos(i), 0, i == len(tokens)-1)
	}
	if err := e.Decode(); err != nil {
		return "opened, no prompt: " + err.Error()
	}
	n := runtime.Pos(len(tokens))
	b.Reset()
	b.Add(tokens[0], n, 0, true)
	if err := e.Decode(); err != nil {
		return "opened, no token: " + err.Error()
	}
	if size, err := e.SnapshotSize(0, 0, n); err == nil {
		buf := make([]byte, size)
		if k, err := e.Snapshot(buf, 0, 2, 0, n); err == nil {
			if err := e.Restore(buf[:k], 1, 2); err != nil {
				return "opened, no restore: " + err.Error()
			}
		}
	}
	if e.Capabilities().CanShift && !e.Capabilities().Seals {
		e.SeqRemove(0, 4, 8)
		e.SeqAdd(0, 8, -1, -4)
		b.Reset()
		b.Add(tokens[0], n-3, 0, true)
		if err := e.Decode(); err != nil {
			return "opened, no shift: " + err.Error()
		}
	}
	return "serves"
}

// useAll runs in the child: it uses each file named on standard input.
func useAll() {
	// An allocation that a damaged number asked for fails here instead of taking the machine's memory.
	limit := unix.Rlimit{Cur: 12 << 30, Max: 12 << 30}
	if err := unix.Setrlimit(unix.RLIMIT_AS, &limit); err != nil {
		panic(err)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		line := use(in.Text())
		fmt.Println(strings.ReplaceAll(line, "\n", " "))
	}
}

// useInChild uses a file in a child process. After a crash, the next call starts a new one.
type user struct {
	cmd    *exec.Cmd
	in     *bufio.Writer
	lines  chan string
	stderr bytes.Buffer
}

func (u *user) start(t *testing.T) {
	t.Helper()
	u.cmd = exec.Command(os.Args[0])
	u.cmd.Env = append(os.Environ(), "UMA_TEST_USE=1")
	in, err := u.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	u.stderr.Reset()
	u.cmd.Stderr = &u.stderr
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	u.in, u.lines = bufio.NewWriter(in), make(chan string)
	go func() {
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			u.lines <- s.Text()
		}
		close(u.lines)
	}()
}

// stop ends the child and returns how it ended.
func (u *user) stop() string {
	u.cmd.Process.Kill()
	err := u.cmd.Wait()
	u.cmd = nil
	said := u.stderr.String()
	return fmt.Sprintf("%v, stderr: %.600s", err, said)
}

// use returns the child's line, or how it crashed or hung.
func (u *user) use(t *testing.T, path string) (line string, ok bool) {
	t.Helper()
	if u.cmd == nil {
		u.start(t)
	}
	fmt.Fprintln(u.in, path)
	if err := u.in.Flush(); err != nil {
		return "it ended: " + u.stop(), false
	}
	timeout := time.NewTimer(2 * time.Minute)
	defer timeout.Stop()
	select {
	case line, ok := <-u.lines:
		if !ok {
			err := u.cmd.Wait()
			u.cmd = nil
			return fmt.Sprintf("it crashed: %v, stderr: %.600s", err, u.stderr.String()), false
		}
		return line, true
	case <-timeout.C:
		return "it hangs: " + u.stop(), false
	}
}

// TestMutatedModels: a file that was changed in one or two places, of metadata or of tensor records, is served or
// refused with ErrModel, and never crashes the process. UMA_MUTATIONS sets how many files (1200 is the whole),
// UMA_MUTATION the one to begin with.
func TestMutatedModels(t *testing.T) {
	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return otherwise
		}
		return n
	}
	count := 150
	if testing.Short() {
		count = 30
	}
	count, from := number("UMA_MUTATIONS", count), number("UMA_MUTATION", 0)
	biased := ggufgen.Tiny()
	biased.Name, biased.AddBOS, biased.Tied = "tiny-tied", true, true
	var sound []*ggufmut.File
	for _, path := range []string{model(t, ggufgen.Tiny()), model(t, ggufgen.TinySWA()), model(t, biased),
		filepath.Join("..", "..", "models", "uma-tiny.gguf")} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := ggufmut.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Bytes(), b) {
			t.Fatalf("%s is put together otherwise than it was", path)
		}
		sound = append(sound, f)
	}
	var u user
	defer func() {
		if u.cmd != nil {
			u.stop()
		}
	}()
	path := filepath.Join(t.TempDir(), "mutated.gguf")
	outcomes := map[string]int{}
	for i := from; i < from+count; i++ {
		what, b := sound[i%len(sound)].Mutate(uint64(i))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		line, ok := u.use(t, path)
		kind, _, _ := strings.Cut(line, ":")
		outcomes[kind]++
		if !ok || kind != "serves" && kind != "refused" && !strings.HasPrefix(kind, "opened") {
			t.Errorf("mutation %d (%s): %s", i, what, line)
		} else if testing.Verbose() {
			t.Logf("mutation %d (%s): %s", i, what, line)
		}
	}
	t.Logf("%d files: %v", count, outcomes)
	if outcomes["serves"] == 0 || outcomes["refused"] == 0 {
		t.Errorf("the mutations are all of one kind: %v", outcomes)
	}
}
