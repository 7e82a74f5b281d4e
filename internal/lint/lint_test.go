// Package lint holds the rules of the house that a compiler does not know, as tests. Each says why it exists.
package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/uma-serve/uma-serve"

type source struct {
	dir  string // package directory, slash-separated, relative to the module
	path string
	file *ast.File
	test bool
}

func sources(t *testing.T) (out []source) {
	t.Helper()
	root := filepath.Join("..", "..")
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); path != root && (strings.HasPrefix(n, ".") || n == "testdata" || n == "bin" || n == "build") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.ToSlash(rel)
		out = append(out, source{filepath.ToSlash(filepath.Dir(rel)), rel, f, strings.HasSuffix(rel, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d Go files found: the walk is broken", len(out))
	}
	return out
}

func imports(f *ast.File) (paths []string) {
	for _, s := range f.Imports {
		p, _ := strconv.Unquote(s.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

func inside(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

// TestOnlyTheBindingImportsC: the engine must stay small enough to replace, and a crash in C must have one place
// to look for. ollama left cgo twice because C types had spread through its server.
func TestOnlyTheBindingImportsC(t *testing.T) {
	for _, s := range sources(t) {
		if slices.Contains(imports(s.file), "C") && s.dir != "runtime/llama" {
			t.Errorf("%s imports \"C\": only runtime/llama may", s.path)
		}
	}
}

// pure are the packages whose value is that they can be replayed and simulated: time is an argument, nothing
// runs beside them and nothing is read from outside.
var pure = []string{"sched", "meridian", "meridian/mrdn", "ipc/wire", "kvsnap", "kvsnap/snapshot/format", "kvsnap/snapshot/index"}

// forbiddenInPure: the import, and what to do instead.
var forbiddenInPure = map[string]string{
	"log": "return an error or a value", "log/slog": "return an error or a value", "context": "take a deadline as an argument",
	"sync": "the caller owns the value", "os": "take bytes", "net": "take bytes", "math/rand": "take a seeded source", "io": "take bytes",
}

// TestPureCore keeps clocks, goroutines, channels, loggers and global randomness out of the pure packages.
func TestPureCore(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !slices.Contains(pure, s.dir) {
			continue
		}
		for _, p := range imports(s.file) {
			if why, bad := forbiddenInPure[p]; bad {
				t.Errorf("%s imports %q: %s is pure: %s", s.path, p, s.dir, why)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine: %s is pure", s.path, s.dir)
			case *ast.ChanType, *ast.SelectStmt:
				t.Errorf("%s uses a channel: %s is pure", s.path, s.dir)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker"}, n.Sel.Name) {
					t.Errorf("%s calls time.%s: %s is pure, time is an argument", s.path, n.Sel.Name, s.dir)
				}
			}
			return true
		})
	}
}

// mayImport says which rooms of ours each room may import, leaf first: imports point one way, so that every part
// can be understood, tested and simulated without those above it. Tests may reach further.
var mayImport = []struct {
	dir     string
	allowed []string
}{
	{"runtime/ggufgen", []string{"runtime", "internal"}},
	{"runtime/enginetest", []string{"runtime", "meridian", "internal"}}, // test support: it holds engines to the reference probe
	{"runtime", []string{"runtime", "internal"}},
	{"sampler", []string{"runtime"}},
	{"meridian/mrdn", nil},
	{"meridian/fabric", []string{"meridian/mrdn"}},
	{"meridian", []string{"meridian", "runtime", "internal/invariants", "internal/thinktags"}}, // runtime: its value types; thinktags: a table
	{"kvsnap/snapshot/format", nil},
	{"kvsnap/snapshot/index", []string{"kvsnap/snapshot/format"}},
	{"kvsnap/snapshot", []string{"internal"}},
	{"kvsnap", []string{"internal/invariants"}},
	{"sched", []string{"sched", "internal/invariants"}},
	{"ipc/wire", []string{"sampler"}},
	{"ipc", []string{"ipc/wire", "internal"}},
	{"metrics", []string{"internal"}},
	{"models", []string{"runtime/ggufgen", "internal"}},
	{"internal", []string{"internal", "ipc/wire", "ipc", "sampler", "runtime"}},
	{"sim", []string{"sim", "sched", "meridian", "kvsnap", "kvsnap/snapshot/format", "kvsnap/snapshot/index", "runtime", "runtime/fake", "internal"}},
	{"daemon", []string{"ipc", "ipc/wire", "sched", "meridian", "kvsnap", "kvsnap/snapshot", "kvsnap/snapshot/format", "sampler", "metrics", "runtime", "models", "internal"}},
}

// TestImportsPointOneWay: cmd → daemon → {ipc, sched, meridian, sampler, metrics} → runtime.
func TestImportsPointOneWay(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, rule := range mayImport {
			if !inside(s.dir, rule.dir) {
				continue
			}
			for _, p := range imports(s.file) {
				p, ours := strings.CutPrefix(p, module+"/")
				if !ours || inside(p, rule.dir) {
					continue
				}
				if !slices.ContainsFunc(rule.allowed, func(a string) bool {
					return p == a || a == "internal" && inside(p, "internal") || a == "sim" && inside(p, "sim") || a == "meridian" && inside(p, "meridian")
				}) {
					t.Errorf("%s imports %s: %s may import only %v of ours", s.path, p, rule.dir, rule.allowed)
				}
			}
			break
		}
	}
}

// TestNoTestOnlyEngineInProducts: the binaries serve real models; the fake engine is for tests and simulation.
func TestNoTestOnlyEngineInProducts(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || !(inside(s.dir, "daemon") || s.dir == "cmd/uma-serve" || s.dir == "cmd/uma-cli") {
			continue
		}
		if slices.Contains(imports(s.file), module+"/runtime/fake") {
			t.Errorf("%s imports runtime/fake: products run the real engine", s.path)
		}
	}
}

// TestRepositorySpeaksOfItselfAlone: paths of the machine it was built on mean nothing to a reader.
func TestRepositorySpeaksOfItselfAlone(t *testing.T) {
	words := []string{"/wo" + "rk/", "/root" + "/", ".lib" + "rary"}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); path != root && (n == ".git" || n == "bin" || n == "build" || n == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if i, err := d.Info(); err != nil || i.Size() > 1<<20 || !i.Mode().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, w := range words {
			if strings.Contains(string(b), w) {
				t.Errorf("%s names %s: a path of somebody's machine", path, w)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
