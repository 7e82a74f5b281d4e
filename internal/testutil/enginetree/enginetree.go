// Package enginetree finds the source tree of llama.cpp that uma-serve is built on, for tests and measurements that
// read files of it.
package enginetree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Find returns the tree of engine.lock in the user's cache. It looks for the repository in the working folder and above
// it. The tree is fetched where it is not there yet, which takes the network and may take minutes; the error ends with
// what scripts/engine-fetch.sh said.
func Find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "engine.lock")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("engine.lock is not in this folder or above it")
		}
		dir = filepath.Dir(dir)
	}
	var said strings.Builder
	cmd := exec.Command(filepath.Join(dir, "scripts", "engine-fetch.sh"), "")
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("llama.cpp's source tree: %w\n%s", err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// VocabularyIn returns the path of a vocabulary among those that llama.cpp's own tests read, such as "llama-bpe".
func VocabularyIn(tree, name string) string {
	return filepath.Join(tree, "models", "ggml-vocab-"+name+".gguf")
}

// TB is the part of testing.TB that Vocabulary uses, so that this package does not link the testing package into
// commands.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
}

// Vocabulary is VocabularyIn of the tree that Find finds. It skips the test where there is none, and says why.
func Vocabulary(t TB, name string) string {
	t.Helper()
	tree, err := Find()
	if err != nil {
		t.Skipf("NOT CHECKED, for want of the vocabulary %s: %v", name, err)
	}
	return VocabularyIn(tree, name)
}
