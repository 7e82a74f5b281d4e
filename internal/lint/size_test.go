package lint

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file has one subject, a package has one job, and a reader holds a struct in mind: beyond these sizes each of them
// had several when they were looked at.
const (
	maxFileLines    = 500
	maxTestLines    = 1000
	maxPackageLines = 5000 // without tests
	maxFields       = 30
)

// allowance lets a package or a struct be larger than the rule, up to most; 0 = no limit, for tables. It goes when
// it is no longer needed.
type allowance struct {
	most int
	why  string
}

var largePackages = map[string]allowance{
}

var largeStructs = map[string]allowance{
	"bench/report.Report":           {0, "a file's fields, by name"},
	"client/gollama.PredictOptions": {0, "another library's options"},
	"daemon/api/llamaform.Settings": {0, "a foreign API's fields, by name"},
	"daemon/config.Config":          {0, "the table of options"},
	"ipc/wire.Request":              {0, "the protocol's fields, by name"},
	"metrics.Metrics":               {0, "the table of metrics"},
	"model/gguf.Info":               {0, "a file's facts, by name"},
	"runtime/llama.engine":          {36, "a C context and what is known about it"},
	"sampler.Params":                {0, "the table of sampling parameters"},
	"sim.Config":                    {0, "the table of the simulator's options"},
	"sim/workload.Request":          {0, "a recorded request's fields, by name"},
}

// tooLarge reports what is wrong with a size beside its rule and its allowance.
func tooLarge(what string, size, rule int, allowed map[string]allowance) string {
	a, ok := allowed[what]
	switch {
	case !ok && size > rule:
		return fmt.Sprintf("%s has %d, the maximum is %d: divide it", what, size, rule)
	case ok && a.most > 0 && size > a.most:
		return fmt.Sprintf("%s has %d, it may have %d (%s): divide it", what, size, a.most, a.why)
	case ok && size <= rule:
		return fmt.Sprintf("%s has %d: it needs no allowance any more", what, size)
	}
	return ""
}

func fields(s *ast.StructType) (n int) {
	for _, f := range s.Fields.List {
		n += max(1, len(f.Names))
	}
	return n
}

// TestSizes: files, packages and structs are small enough to have one subject each.
func TestSizes(t *testing.T) {
	packages, structs := map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		b, err := os.ReadFile(filepath.Join("../..", s.path))
		if err != nil {
			t.Fatal(err)
		}
		lines, rule := strings.Count(string(b), "\n"), maxFileLines
		if s.test {
			rule = maxTestLines
		} else {
			packages[s.dir] += lines
		}
		if wrong := tooLarge(s.path, lines, rule, nil); wrong != "" {
			t.Error(wrong)
		}
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if typ, ok := n.(*ast.TypeSpec); ok {
				if st, ok := typ.Type.(*ast.StructType); ok {
					structs[s.dir+"."+typ.Name.Name] = fields(st)
				}
			}
			return true
		})
	}
	for _, of := range []struct {
		sizes   map[string]int
		rule    int
		allowed map[string]allowance
	}{{packages, maxPackageLines, largePackages}, {structs, maxFields, largeStructs}} {
		for name, size := range of.sizes {
			if wrong := tooLarge(name, size, of.rule, of.allowed); wrong != "" {
				t.Error(wrong)
			}
		}
		for name := range of.allowed {
			if _, ok := of.sizes[name]; !ok {
				t.Errorf("%s has an allowance and does not exist", name)
			}
		}
	}
	a := map[string]allowance{"x": {12, ""}, "table": {0, ""}}
	for _, c := range []struct {
		what string
		size int
		ok   bool
	}{{"y", 10, true}, {"y", 11, false}, {"x", 12, true}, {"x", 13, false}, {"x", 10, false}, {"table", 99, true}} {
		if got := tooLarge(c.what, c.size, 10, a); (got == "") != c.ok {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
