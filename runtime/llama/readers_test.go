//go:build cgo && (llama_engine || llama_system)

package llama

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/ggufmut"
	"github.com/uma-serve/uma-serve/model/gguf/gguffile"
	"github.com/uma-serve/uma-serve/runtime/ggufgen"
)

// changed is a small model whose file has this value of key.
func changed(t *testing.T, cfg ggufgen.Config, key string, value any) string {
	t.Helper()
	in, err := os.Open(model(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		t.Fatal(err)
	}
	kvs, tensors, err := gguffile.Read(in, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	kvs = slices.DeleteFunc(kvs, func(kv gguffile.KV) bool { return kv.Key == key })
	kvs = append(kvs, gguffile.KV{Key: key, Value: value})
	path := filepath.Join(t.TempDir(), "changed.gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := gguffile.Write(out, kvs, tensors); err != nil {
		t.Fatal(err)
	}
	return path
}

// withPooling is a small model whose file has this pooling_type.
func withPooling(t *testing.T, n uint32) string {
	t.Helper()
	return changed(t, ggufgen.TinyEmbed(), "llama.pooling_type", n)
}

// loader asks llama.cpp itself, in a process of scripts/archs/more.cpp, whether it serves a file.
type loader struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// serves returns "serves", "refused" or "crashed".
func (l *loader) serves(t *testing.T, program, path string) string {
	t.Helper()
	if l.cmd == nil {
		l.cmd = exec.Command(program, "--load")
		in, err := l.cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := l.cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		l.in, l.lines = in, bufio.NewScanner(out)
	}
	fmt.Fprintln(l.in, path)
	for l.lines.Scan() { // before it aborts, ggml prints a backtrace
		if line := l.lines.Text(); line == "serves" || line == "refused" {
			return line
		}
	}
	l.cmd.Wait()
	l.cmd = nil
	return "crashed"
}

// explained are the refusals of ours that llama.cpp does not share although it computes a token, by what the error
// says, with the reason.
var explained = []struct{ text, why string }{
	{`rope.dimension_count is \d+, want an even number`, "it counts the elements of pairs; most kinds use it"},
	{`rope.dimension_sections (has|are) -?\d+`, "most kinds have one position a token, and no sections"},
	{`rope.freq_base is -\S+, want more than 0`, "a negative base has no powers: the kinds that use it compute NaN"},
	{`a dimension is \d+, out of range`, "no text and no head is longer than 2^31; this kind does not read the key"},
	{`which no weights have|it is a norm, a bias or a scale`, "ggml asserts it where such a tensor is used"},
	{`want a finite number`, "no number is infinite but the bound of a gate; this kind of model happens not to use it"},
	{`_epsilon is \S+, want 0 or more and below 1`, "an epsilon that outweighs what it is added to is damage"},
}

// numbers and names differ from file to file.
var particular = regexp.MustCompile(`"[^"]*"|[-+]?[0-9][0-9.e+]*|\[.*\]`)

// TestReaders compares our reader with llama.cpp's on the models of all architectures, in the folder UMA_ARCHS, and on
// UMA_MUTATIONS changed ones (2000): what ours accepts does not end the engine's process, and what llama.cpp serves
// ours accepts or refuses for a reason in explained. scripts/archs.sh -readers runs it.
func TestReaders(t *testing.T) {
	dir, program := os.Getenv("UMA_ARCHS"), os.Getenv("UMA_ARCHS_LOADER")
	if dir == "" || program == "" {
		t.Skip("UMA_ARCHS and UMA_ARCHS_LOADER are not set: scripts/archs.sh -readers sets them")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no models in %s: %v", dir, err)
	}
	count, err := strconv.Atoi(os.Getenv("UMA_MUTATIONS"))
	if err != nil {
		count = 2000
	}
	var u user
	var theirs loader
	defer func() {
		if u.cmd != nil {
			u.stop()
		}
		if theirs.cmd != nil {
			theirs.in.Close()
			theirs.cmd.Wait()
		}
	}()
	outcomes, stricter := map[string]int{}, map[string]int{}
	one := func(what, path string, sound bool) {
		// Two errors are for all files of a kind: a vocabulary that encodes no text is none for the engine.
		_, refused := checkFile(path)
		if refused == nil {
			switch line, ok := u.use(t, path); {
			case ok:
				outcomes["accepted"]++
			case strings.Contains(line, "its first decode failed an assertion"):
				// The process that loads it ends with an error that says so, before there is any request.
				outcomes["refused at the first decode"]++
			default:
				t.Errorf("%s: accepted, and then %s", what, line)
			}
			return
		}
		said := theirs.serves(t, program, path)
		outcomes["refused, llama.cpp "+said]++
		if said != "serves" {
			return
		}
		if sound {
			t.Errorf("%s: refused: %v", what, refused)
		}
		text := particular.ReplaceAllString(refused.Error(), "#")
		if !slices.ContainsFunc(explained, func(e struct{ text, why string }) bool {
			return regexp.MustCompile(e.text).MatchString(refused.Error())
		}) {
			if stricter[text]++; stricter[text] == 1 {
				t.Errorf("%s: llama.cpp serves it, ours refuses it: %v", what, refused)
			}
		}
	}
	mutated := filepath.Join(t.TempDir(), "mutated.gguf")
	for i, path := range paths {
		one(filepath.Base(path), path, true)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := ggufmut.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Bytes(), b) {
			t.Errorf("%s is put together otherwise than it was", path)
			continue
		}
		for seed := i; seed < count; seed += len(paths) {
			what, damaged := f.Mutate(uint64(seed))
			if err := os.WriteFile(mutated, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			one(fmt.Sprintf("%s, mutation %d (%s)", filepath.Base(path), seed, what), mutated, false)
		}
	}
	t.Logf("%d models and %d mutations: %v", len(paths), count, outcomes)
}
