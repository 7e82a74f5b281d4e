package lint

import (
	"go/ast"
	"go/token"
	"maps"
	"strings"
	"testing"
)

// structs are the module's struct types, by package directory and name, as in "core.Loop".
type structs map[string]*declared

type declared struct {
	source
	typ *ast.StructType
}

func structTypes(of []source) structs {
	all := structs{}
	for _, s := range of {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if typ, ok := n.(*ast.TypeSpec); ok {
				if st, ok := typ.Type.(*ast.StructType); ok {
					all[s.dir+"."+typ.Name.Name] = &declared{s, st}
				}
			}
			return true
		})
	}
	return all
}

// reach counts a struct's fields by the names that a reader finds behind its dot: an embedded struct of the module
// counts as the fields that it promotes, those of another package as far as they are exported.
func (all structs) reach(name string) int {
	return len(all.names(all[name], map[string]bool{}))
}

func (all structs) names(d *declared, out map[string]bool) map[string]bool {
	for _, f := range d.typ.Fields.List {
		for _, n := range f.Names {
			out[n.Name] = true
		}
		if len(f.Names) > 0 {
			continue
		}
		dir, name := d.embedded(f.Type)
		inner, ok := all[dir+"."+name]
		if !ok {
			out[name] = true
			continue
		}
		promoted := all.names(inner, map[string]bool{})
		if dir != d.dir {
			maps.DeleteFunc(promoted, func(n string, _ bool) bool { return !ast.IsExported(n) })
		}
		maps.Copy(out, promoted)
	}
	return out
}

// embedded returns the package directory and the name of an embedded field's type.
func (s source) embedded(typ ast.Expr) (dir, name string) {
	switch t := typ.(type) {
	case *ast.StarExpr:
		return s.embedded(t.X)
	case *ast.IndexExpr:
		return s.embedded(t.X)
	case *ast.Ident:
		return s.dir, t.Name
	case *ast.SelectorExpr:
		pkg, _ := t.X.(*ast.Ident)
		for _, i := range s.file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			inside, ours := strings.CutPrefix(path, module+"/")
			base := path[strings.LastIndexByte(path, '/')+1:]
			if i.Name != nil {
				base = i.Name.Name
			}
			if ours && pkg != nil && base == pkg.Name {
				return inside, t.Sel.Name
			}
		}
		return "", t.Sel.Name
	}
	return "", ""
}

func TestFieldsOfEmbeddedStructs(t *testing.T) {
	var all []source
	for name, text := range map[string]string{
		"a/a.go": `package a
			import ("sync"; other "` + module + `/b")
			type group struct { x, y int; deep }
			type deep struct { z, w int }
			type T struct { sync.Mutex; group; *other.B; named other.B; x int; error }`,
		"b/b.go": "package b; type B struct { Seen, Too int; hidden int }",
	} {
		s, err := parse(token.NewFileSet(), name, text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	// Mutex, x, y, z, w, Seen, Too, named, error
	if got := structTypes(all).reach("a.T"); got != 9 {
		t.Errorf("%d fields in reach, want 9", got)
	}
}
