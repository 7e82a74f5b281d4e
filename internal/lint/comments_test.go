package lint

import (
	"fmt"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// hidingForm matches a comment that defines its subject by a question instead of a term: "limit is how many bytes …".
// A reader then has to work out the quantity, and mostly does not learn its unit.
var hidingForm = regexp.MustCompile(
	`^[A-Za-z_]+(\[[^]]*\])? (is|are|has) (what|how|whether|where|when|who|which|why)\b`)

// hiding returns an error, with file and line, for each line of that form in the comments of s, which fset has parsed.
// It finds the form across a line break too.
func hiding(fset *token.FileSet, s source) (wrong []string) {
	for _, group := range s.file.Comments {
		lines := strings.Split(groupText(group), "\n")
		first := fset.Position(group.Pos()).Line
		for i, line := range lines {
			text := strings.TrimSpace(line)
			if i+1 < len(lines) {
				text += " " + strings.TrimSpace(lines[i+1])
			}
			if found := hidingForm.FindString(text); found != "" {
				wrong = append(wrong, fmt.Sprintf("%s:%d: the comment says %q: begin the comment of a function with a "+
					"verb (\"returns …\", \"reports whether …\"), and define a type, field or constant by its term, "+
					"with its unit (\"is the number of …\", \"is the limit on …, in bytes\")", s.path, first+i, found))
			}
		}
	}
	return wrong
}

// TestCommentsNameTheThing: no comment has the form "X is what/how/whether/where/when/who/which/why …".
func TestCommentsNameTheThing(t *testing.T) {
	fset := token.NewFileSet()
	files := walk(t, func(name string) bool { return strings.HasSuffix(name, ".go") }, func(name, text string) {
		s, err := parse(fset, name, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range hiding(fset, s) {
			t.Error(wrong)
		}
	})
	if files < 500 {
		t.Errorf("only %d Go files found: the pattern is wrong", files)
	}
}

// TestHidingFormsAreFound: the rule finds the form in doc comments and behind fields, and names its line.
func TestHidingFormsAreFound(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"// limit is how many bytes it reads.\nvar limit int", "x.go:3: "},
		{"// state[i] is whether seat i is taken.\nvar state []bool", "x.go:3: "},
		{"var x struct {\n\tsize int // size is what it holds\n}", "x.go:4: "},
		{"// A file.\n// names are what it is called by.\nvar names int", "x.go:4: "},
		{"// limit is\n// what a call reads.\nvar limit int", "x.go:3: "},
		{"// limit is the size of a read, in bytes.\nvar limit int", ""},
		{"// ok reports whether it fits.\nvar ok bool", ""},
		{"// The limit is checked when it is read.\nvar limit int", ""},
		{"var text = \"// limit is what it reads\"", ""},
	} {
		fset := token.NewFileSet()
		s, err := parse(fset, "x.go", "package p\n\n"+c.text+"\n")
		if err != nil {
			t.Fatal(err)
		}
		wrong := hiding(fset, s)
		if c.want == "" && len(wrong) > 0 || c.want != "" && (len(wrong) != 1 || !strings.HasPrefix(wrong[0], c.want)) {
			t.Errorf("%q is answered %q, want %q", c.text, wrong, c.want)
		}
	}
}
