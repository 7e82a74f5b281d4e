package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the width of a line; a tab counts tabColumns.
const (
	maxColumns = 120
	tabColumns = 4
)

// longLine allows lines that cannot be broken.
type longLine struct {
	file string // a pattern of package path, or the end of a path after "*"
	line *regexp.Regexp
	why  string
}

var longLines = []longLine{
	{"*.md", regexp.MustCompile(`^\|`), "a row of a Markdown table is one line"},
}

// Texts of data in folders that hold nothing else are not checked: testdata, C sources beside llama.cpp's.
var lineFiles = regexp.MustCompile(`(\.(go|md|sh|css|html)|^Makefile|/testdata/help/[^/]*\.txt|^contrib/(prometheus|` +
	`systemd|sysusers)/[^/]*|^contrib/uma-serve\.toml)$`)

// columns is the width of a line.
func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// checkColumns returns the lines of a file that are too long, and marks the allowances that it used.
func checkColumns(name, text string, allowed []longLine, used map[int]bool) (wrong []string) {
	for i, line := range strings.Split(text, "\n") {
		n := columns(line)
		if n <= maxColumns {
			continue
		}
		ok := slices.IndexFunc(allowed, func(a longLine) bool {
			in := a.file == name || strings.HasPrefix(a.file, "*") && strings.HasSuffix(name, a.file[1:])
			return in && a.line.MatchString(line)
		})
		if used[ok] = true; ok < 0 {
			wrong = append(wrong, fmt.Sprintf("%s:%d has %d columns; the maximum is %d", name, i+1, n, maxColumns))
		}
	}
	return wrong
}

// walk calls f with each text file of the repository.
func walk(t *testing.T, match func(name string) bool, f func(name, text string)) (files int) {
	t.Helper()
	root := os.DirFS(filepath.Join("..", ".."))
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") && base != ".ci" || base == "bin" || base == "build" ||
				base == "dist" || base == "bench-out" ||
				base == "node_modules" || base == "testdata" && !strings.HasPrefix(name, "cmd/")) {
				return fs.SkipDir
			}
			return nil
		}
		if !match(name) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err == nil {
			files++
			f(name, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestLinesEndAt120Columns: Go sources, documents, templates, scripts and help texts end at 120 columns.
func TestLinesEndAt120Columns(t *testing.T) {
	used := map[int]bool{}
	files := walk(t, lineFiles.MatchString, func(name, text string) {
		for _, wrong := range checkColumns(name, text, longLines, used) {
			t.Error(wrong)
		}
	})
	if files < 500 {
		t.Errorf("only %d files found: the pattern is wrong", files)
	}
	for i, a := range longLines {
		if !used[i] {
			t.Errorf("no line of %s needs its allowance (%s): remove it", a.file, a.why)
		}
	}
	long := strings.Repeat("ü", maxColumns)
	for text, want := range map[string]int{long: 0, long + "x": 1, "\t" + long[:2*117]: 1, "\t" + long[:2*116]: 0,
		"| " + long: 0, "a | " + long: 1} {
		if got := checkColumns("x.md", text, longLines, map[int]bool{}); len(got) != want {
			t.Errorf("%.20q…: %v, want %d", text, got, want)
		}
	}
}

// comments are the words that a comment must not have, for a subject that has a name.
var riddlesInComments = regexp.MustCompile(
	`(?i)\b(nobody|somebody|whoever|whom|who was|who were|of (?:its|their) own|is not to be had|` +
		`as (?:they|it) (?:lies?|stands?))\b`)

// commented are sources outside Go whose comments are read too.
var commented = regexp.MustCompile(`\.(cpp|c|h|sh|mjs|js|py|css|toml)$|^Makefile$`)

// TestCommentsNameTheSubject: a comment names the client, the request or the goroutine that it is about.
func TestCommentsNameTheSubject(t *testing.T) {
	find := func(name, text string) {
		flat := strings.Join(strings.Fields(strings.NewReplacer("\n//", "\n", "\n#", "\n").Replace(text)), " ")
		for _, at := range riddlesInComments.FindAllStringIndex(flat, -1) {
			t.Errorf("%s: %q in %q: name the subject", name, flat[at[0]:at[1]],
				strings.ToValidUTF8(flat[max(at[0]-40, 0):min(at[1]+40, len(flat))], ""))
		}
	}
	for _, s := range sources(t) {
		if path.Base(s.path) == "words_test.go" || path.Base(s.path) == "lines_test.go" {
			continue // the rules name the words
		}
		for _, g := range s.file.Comments {
			find(s.path, groupText(g))
		}
	}
	if n := walk(t, commented.MatchString, find); n < 50 {
		t.Errorf("only %d sources found: the pattern is wrong", n)
	}
	s, err := parse(token.NewFileSet(), "x.go", "package p\n\n// a\n// client of\n// its own\nvar x int\n")
	if err != nil || !riddlesInComments.MatchString(strings.Join(strings.Fields(groupText(s.file.Comments[0])), " ")) {
		t.Errorf("a riddle across two lines is accepted (%v)", err)
	}
}

// groupText is the text of a comment without its markers.
func groupText(g *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(strings.TrimPrefix(c.Text, "//") + "\n")
	}
	return b.String()
}
