// Package lint holds the rules of the house that a compiler does not know, as tests. Each says why it exists.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/uma-serve/uma-serve"

// rule lists the packages of this module that a folder may import.
type rule struct {
	dir     string
	allowed []string // exactly these packages
	why     string
}

type source struct {
	dir  string // package directory, slash-separated, relative to the module
	path string
	file *ast.File
	test bool
}

func parse(fset *token.FileSet, name string, text any) (source, error) {
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{path.Dir(name), name, f, strings.HasSuffix(name, "_test.go")}, err
}

func sources(t *testing.T) []source {
	t.Helper()
	out, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("only %d Go files found: the walk is broken", len(out))
	}
	return out
}

// parsed reads them once for all rules.
var parsed = sync.OnceValues(func() (out []source, err error) {
	root := os.DirFS(filepath.Join("..", ".."))
	fset := token.NewFileSet()
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); name != "." &&
				(strings.HasPrefix(n, ".") || n == "testdata" || n == "bin" || n == "build") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		s, err := parse(fset, name, text)
		out = append(out, s)
		return err
	})
	return out, err
})

func imports(f *ast.File) (paths []string) {
	for _, s := range f.Imports {
		p, _ := strconv.Unquote(s.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

func inside(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

// ruleOf is the rule of the longest folder that dir lies in.
func ruleOf(dir string) *rule {
	var best *rule
	for i, r := range rules {
		if inside(dir, r.dir) && (best == nil || len(r.dir) > len(best.dir)) {
			best = &rules[i]
		}
	}
	return best
}

// imported says what is wrong with what s imports of ours.
func imported(s source) (wrong []string) {
	if s.test {
		return nil
	}
	r := ruleOf(s.dir)
	if r == nil {
		return []string{fmt.Sprintf("%s: the folder %s has no rule of what it may import; give it one, with the reason",
			s.path, s.dir)}
	}
	for _, p := range imports(s.file) {
		p, ours := strings.CutPrefix(p, module+"/")
		if ours && !inside(p, r.dir) && !slices.Contains(r.allowed, p) {
			wrong = append(wrong, fmt.Sprintf("%s imports %s: of ours %s may import only %q: %s", s.path, p, r.dir,
				r.allowed, r.why))
		}
		for dir, by := range apart {
			if ours && inside(p, dir) && !inside(s.dir, dir) && !inside(s.dir, by) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: only %s does", s.path, p, by))
			}
		}
	}
	for _, dir := range byItself {
		if inside(s.dir, dir) && r.dir != s.dir {
			wrong = append(wrong, fmt.Sprintf("%s: each folder of %s/ has a rule for itself, and %s has none", s.path,
				dir, s.dir))
		}
	}
	return wrong
}

// cgo says whether s imports "C" where it may not.
func cgo(s source) (wrong []string) {
	if slices.Contains(imports(s.file), "C") && !inside(s.dir, "runtime/llama") {
		wrong = append(wrong, s.path+` imports "C": only runtime/llama may`)
	}
	return wrong
}

// impure says what is wrong with a pure package's source.
func impure(s source) (wrong []string) {
	if s.test || !slices.Contains(pure, s.dir) {
		return nil
	}
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s "+format, append([]any{s.path}, args...)...))
	}
	names := map[string]string{} // of imports, as the file calls them
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
		if name == "." {
			bad("imports %q as . and so hides what it uses: %s is pure", p, s.dir)
		}
		if strings.HasPrefix(p, module+"/") || slices.Contains(pureMayImport, p) {
			continue
		}
		instead := insteadOf[p]
		if instead == "" {
			instead = "it is not among the imports that are known to be pure"
		}
		bad("imports %q: %s is pure: %s", p, s.dir, instead)
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			bad("starts a goroutine: %s is pure", s.dir)
		case *ast.ChanType, *ast.SelectStmt:
			bad("uses a channel: %s is pure", s.dir)
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			switch {
			case !ok:
			case names[x.Name] == "time" && !slices.Contains(pureTime, n.Sel.Name):
				bad("uses time.%s: %s is pure, time is an argument", n.Sel.Name, s.dir)
			case names[x.Name] == "fmt" && slices.Contains(notPureFmt, n.Sel.Name):
				bad("calls fmt.%s: %s is pure: return the text", n.Sel.Name, s.dir)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
				bad("calls %s: %s is pure: return the text", f.Name, s.dir)
			}
		}
		return true
	})
	return wrong
}

// reachesOut says what a confined folder's source has that reaches out of the process.
func reachesOut(s source) (wrong []string) {
	why, ok := confined[s.dir]
	if !ok || s.test {
		return nil
	}
	for _, p := range imports(s.file) {
		if slices.Contains(outside, p) {
			wrong = append(wrong, fmt.Sprintf("%s imports %q: %s reaches nothing outside: %s", s.path, p, s.dir, why))
		}
	}
	return wrong
}

// speaksHTTP says whether s imports net/http where it may not.
func speaksHTTP(s source) (wrong []string) {
	if why, ok := withoutHTTP[s.dir]; ok && !s.test && slices.Contains(imports(s.file), "net/http") {
		wrong = append(wrong, fmt.Sprintf("%s imports net/http: %s may not: %s", s.path, s.dir, why))
	}
	return wrong
}

// tooHeavy says which modules s imports that only measurement needs.
func tooHeavy(s source) (wrong []string) {
	for prefix, folders := range heavy {
		allowed := slices.ContainsFunc(folders, func(dir string) bool { return inside(s.dir, dir) })
		for _, p := range imports(s.file) {
			if strings.HasPrefix(p, prefix) && !allowed && !s.test {
				wrong = append(wrong, fmt.Sprintf(
					"%s imports %s: only %q may: servers and clients do not carry it (ADR 9)", s.path, p, folders))
			}
		}
	}
	return wrong
}

// fakeInProduct says whether a program for users has the engine for tests.
func fakeInProduct(s source) (wrong []string) {
	if s.test || !(inside(s.dir, "daemon") || s.dir == "cmd/uma-serve" || inside(s.dir, "cmd/uma-cli")) {
		return nil
	}
	if slices.Contains(imports(s.file), module+"/runtime/fake") {
		wrong = append(wrong, s.path+" imports runtime/fake: products run the real engine")
	}
	return wrong
}

func hold(t *testing.T, check func(source) []string) {
	t.Helper()
	for _, s := range sources(t) {
		for _, wrong := range check(s) {
			t.Error(wrong)
		}
	}
}

// TestOnlyTheBindingImportsC: the engine must stay small enough to replace, and a crash in C must have one place
// to look for. ollama left cgo twice because C types had spread through its server.
func TestOnlyTheBindingImportsC(t *testing.T) { hold(t, cgo) }

// TestPureCore keeps clocks, goroutines, channels, loggers and global randomness out of the pure packages.
func TestPureCore(t *testing.T) { hold(t, impure) }

// TestImportsPointOneWay: cmd → daemon → {ipc, sched, meridian, sampler, metrics} → runtime, and each folder of
// internal/ as its rule says.
func TestImportsPointOneWay(t *testing.T) { hold(t, imported) }

// TestConfinedReachNothing: what handles strangers' programs, or only shows something, opens no file and no connection.
func TestConfinedReachNothing(t *testing.T) { hold(t, reachesOut) }

// TestOptionsSpeakNoHTTP: package config stands below what answers requests.
func TestOptionsSpeakNoHTTP(t *testing.T) { hold(t, speaksHTTP) }

// TestMeasurementStaysOutOfServers: gonum and the plotting library are for benchmarks and simulations alone.
func TestMeasurementStaysOutOfServers(t *testing.T) { hold(t, tooHeavy) }

// TestNoTestOnlyEngineInProducts: the binaries serve real models; the fake engine is for tests and simulation.
func TestNoTestOnlyEngineInProducts(t *testing.T) { hold(t, fakeInProduct) }

// TestRulesBite: each rule refuses a source that breaks it, and no other rule is needed for that.
func TestRulesBite(t *testing.T) {
	try := func(check func(source) []string, name, text, want string) {
		t.Helper()
		s, err := parse(token.NewFileSet(), name, text)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, text)
		}
		wrong := strings.Join(check(s), "\n")
		if want == "" && wrong != "" || !strings.Contains(wrong, want) {
			t.Errorf("%s\n%s\nis answered %q, want %q", name, text, wrong, want)
		}
		if s, _ = parse(token.NewFileSet(), strings.TrimSuffix(name, ".go")+"_test.go", text); want != "" &&
			!strings.Contains(text, `import "C"`) && len(check(s)) > 0 {
			t.Errorf("%s: the rule holds for tests too: %q", name, check(s))
		}
	}
	importing := func(p string) string { return fmt.Sprintf("package p\nimport _ %q\n", p) }

	// One way: each folder may import what its rule lists, and neither the daemon nor a program.
	for _, r := range rules {
		file := r.dir + "/x.go"
		for _, p := range r.allowed {
			try(imported, file, importing(module+"/"+p), "")
		}
		for _, p := range []string{"daemon", "cmd/uma-cli", "cmd/uma-cli/internal/ask", "runtime/llama"} {
			if want := " imports " + p + ": of ours " + r.dir + " may import only"; !slices.Contains(r.allowed, p) &&
				!inside(p, r.dir) {
				try(imported, file, importing(module+"/"+p), want)
			}
		}
		if r.why == "" {
			t.Errorf("the rule of %s has no reason", r.dir)
		}
	}
	try(imported, "newfolder/x.go", "package p\n", "newfolder has no rule")
	try(imported, "internal/newfolder/x.go", "package p\n", "internal/newfolder has no rule")
	try(imported, "internal/cli/ui/below/x.go", "package p\n",
		"each folder of internal/ has a rule for itself, and internal/cli/ui/below has none")
	try(imported, "cmd/uma-cli/internal/newfolder/x.go", "package p\n",
		"each folder of cmd/uma-cli/internal/ has a rule for itself, and cmd/uma-cli/internal/newfolder has none")
	try(imported, "ipc/wire/x.go", importing(module+"/ipc"), "imports ipc: of ours ipc/wire may import only")
	try(imported, "kvsnap/snapshot/index/x.go", importing(module+"/kvsnap/snapshot"),
		"imports kvsnap/snapshot: of ours kvsnap/snapshot/index")
	try(imported, "sched/x.go", importing(module+"/internal/host/hostmem"), "imports internal/host/hostmem")

	for dir, by := range apart {
		parent, _, _ := strings.Cut(dir, "/")
		try(imported, parent+"/x.go", importing(module+"/"+dir), "imports "+dir+": only "+by+" does")
	}

	// Pure.
	for _, dir := range pure {
		file := dir + "/x.go"
		for p, instead := range insteadOf {
			try(impure, file, importing(p), instead)
		}
		for _, p := range []string{"net/rpc", "github.com/spf13/pflag", "golang.org/x/sys/unix", "time/tzdata"} {
			try(impure, file, importing(p), "not among the imports that are known to be pure")
		}
		for _, name := range []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer",
			"NewTicker", "Local"} {
			try(impure, file, "package p\nimport \"time\"\nvar x = time."+name+"\n", "uses time."+name)
			try(impure, file, "package p\nimport clock \"time\"\nvar x = clock."+name+"\n", "uses time."+name)
		}
		for text, want := range map[string]string{
			"func f() { go f() }":                           "starts a goroutine",
			"var c chan int":                                "uses a channel",
			"func f() { select {} }":                        "uses a channel",
			"func f() { println(1) }":                       "calls println",
			"import \"fmt\"\nfunc f() { fmt.Println(1) }":   "calls fmt.Println",
			"import . \"time\"\nvar x = Now()":              "hides what it uses",
			"import \"time\"\nvar x = 3 * time.Second":      "",
			"import \"fmt\"\nvar x = fmt.Sprint(1)":         "",
			"import \"" + module + "/internal/invariants\"": "",
		} {
			try(impure, file, "package p\n"+text+"\n", want)
		}
	}
	try(impure, "daemon/x.go", importing("math/rand/v2"), "")

	// Confined.
	for dir := range confined {
		for _, p := range outside {
			try(reachesOut, dir+"/x.go", importing(p), "reaches nothing outside")
		}
		try(reachesOut, dir+"/x.go", importing("strings"), "")
	}

	// Options.
	for dir := range withoutHTTP {
		try(speaksHTTP, dir+"/x.go", importing("net/http"), "imports net/http")
		try(speaksHTTP, dir+"/x.go", importing("net/netip"), "")
	}

	// Measurement.
	for _, dir := range []string{"daemon", "client", "sched", "cmd/uma-serve", "simulate"} {
		try(tooHeavy, dir+"/x.go", importing("gonum.org/v1/plot"), "only")
	}
	try(tooHeavy, "cmd/uma-sim/internal/explore/x.go", importing("gonum.org/v1/plot"), "")

	// The binding and the products.
	try(cgo, "daemon/x.go", "package p\nimport \"C\"\n", "only runtime/llama may")
	try(cgo, "runtime/llama/x.go", "package p\nimport \"C\"\n", "")
	for _, dir := range []string{"daemon", "daemon/api", "cmd/uma-serve", "cmd/uma-cli"} {
		try(fakeInProduct, dir+"/x.go", importing(module+"/runtime/fake"), "products run the real engine")
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
		if n := d.Name(); n == ".git" && !d.IsDir() { // a worktree's
			return nil
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
				t.Errorf("%s names %s: a path of a developer's machine", path, w)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
