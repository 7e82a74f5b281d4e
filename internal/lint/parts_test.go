package lint

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

const binding = module + "/runtime/llama"

// leftOutWith are the parts that are left out together with one (scripts/engine-probe.sh).
var leftOutWith = map[string][]string{
	"llama_no_products":  {"llama_no_attention", "llama_no_positions", "llama_no_keep", "llama_no_norms"},
	"llama_no_attention": {"llama_no_positions"},
}

// TestBuildsWithoutParts: the binding's Go files fit together without each part that may not fit a llama.cpp (the tags
// llama_no_…), and with an installed library. No other test compiles these builds, as their C++ would take minutes;
// what C declares is not looked at here.
func TestBuildsWithoutParts(t *testing.T) {
	tags := map[string]bool{}
	for _, path := range []string{binding, binding + "/kernels"} {
		list, err := filepath.Glob(filepath.Join(folderOf(path), "*.go"))
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %v", path, err)
		}
		for _, name := range list {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			line, _, _ := strings.Cut(string(b), "\n")
			for _, tag := range regexp.MustCompile(`llama_no_\w+`).FindAllString(line, -1) {
				tags[tag] = true
			}
		}
	}
	if !tags["llama_no_images"] || !tags["llama_no_grids"] {
		t.Fatalf("the tags are %v", tags)
	}
	c := checker{known: map[string]*types.Package{}}
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		c.tags = append([]string{"llama_engine", tag}, leftOutWith[tag]...)
		c.run(t)
	}
	c.tags = []string{"llama_system"}
	c.run(t)
}

// folderOf returns the folder of one of this module's packages.
func folderOf(path string) string {
	return filepath.Join("..", "..", filepath.FromSlash(strings.TrimPrefix(path, module)))
}

// checker checks the types of packages that have C code, without a C compiler.
type checker struct {
	tags  []string
	known map[string]*types.Package // of packages without C code, by path
}

func (c *checker) run(t *testing.T) {
	t.Helper()
	if _, err := c.check(binding); err != nil {
		t.Errorf("with -tags %s: %v", strings.Join(c.tags, ","), err)
	}
}

// check returns the types of one of the binding's packages. The error has the first few faults.
func (c *checker) check(path string) (*types.Package, error) {
	ctx := build.Default
	ctx.CgoEnabled, ctx.BuildTags, ctx.GOOS, ctx.GOARCH = true, c.tags, "linux", "amd64"
	p, err := ctx.ImportDir(folderOf(path), 0)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if err := c.load(p.Imports); err != nil {
		return nil, err
	}
	var faults []string
	config := types.Config{FakeImportC: true, Importer: c, Sizes: types.SizesFor("gc", "amd64"),
		Error: func(err error) {
			// A variable of C's types has none here.
			if len(faults) < 5 && !strings.Contains(err.Error(), "invalid type") {
				faults = append(faults, err.Error())
			}
		}}
	got, _ := config.Check(path, fset, files, nil) // its error is the first of the faults
	if len(faults) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(faults, "\n"))
	}
	return got, nil
}

// load reads what is not known yet of imported packages.
func (c *checker) load(paths []string) error {
	paths = slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		return path == "C" || path == "unsafe" || c.known[path] != nil || strings.HasPrefix(path, binding+"/kernels")
	})
	if len(paths) == 0 {
		return nil
	}
	list, err := packages.Load(&packages.Config{Dir: filepath.Join("..", ".."),
		Env: append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="), Mode: packages.NeedName | packages.NeedTypes |
			packages.NeedImports | packages.NeedDeps | packages.NeedExportFile}, paths...)
	if err != nil {
		return err
	}
	for _, p := range list {
		if p.Types == nil || len(p.Errors) > 0 {
			return fmt.Errorf("%s: %v", p.PkgPath, p.Errors)
		}
		c.known[p.PkgPath] = p.Types
	}
	return nil
}

// Import implements types.Importer.
func (c *checker) Import(path string) (*types.Package, error) {
	switch p := c.known[path]; {
	case path == "unsafe":
		return types.Unsafe, nil
	case strings.HasPrefix(path, binding+"/kernels"):
		return c.check(path)
	case p == nil:
		return nil, fmt.Errorf("%s is not loaded", path)
	default:
		return p, nil
	}
}
