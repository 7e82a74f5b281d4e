package lint

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConformance checks docs/conformance.md: each row names a file with an identifier in it, and a test that exists,
// or says that it is open.
func TestConformance(t *testing.T) {
	root := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	place := regexp.MustCompile("^`([a-z0-9_/.-]+\\.go):([A-Za-z0-9_]+)`$")
	test := regexp.MustCompile("^`([a-z0-9_/-]+)\\.(Test[A-Za-z0-9_]+)`$")
	rows, open := 0, 0
	for i, line := range strings.Split(string(doc), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "feature" {
			continue
		}
		rows++
		if len(cells) >= 2 && strings.HasPrefix(cells[1], "**open**: ") {
			open++
			continue
		}
		if len(cells) != 3 {
			t.Errorf("line %d has %d columns", i+1, len(cells))
			continue
		}
		if m := place.FindStringSubmatch(cells[1]); m == nil {
			t.Errorf("line %d: %s is no `file.go:Identifier`", i+1, cells[1])
		} else if src, err := os.ReadFile(filepath.Join(root, m[1])); err != nil {
			t.Errorf("line %d: %v", i+1, err)
		} else if !regexp.MustCompile(`\b` + m[2] + `\b`).Match(src) {
			t.Errorf("line %d: %s has no %s", i+1, m[1], m[2])
		}
		if m := test.FindStringSubmatch(cells[2]); m == nil {
			t.Errorf("line %d: %s is no `folder.TestName`", i+1, cells[2])
		} else if !hasTest(t, filepath.Join(root, m[1]), m[2]) {
			t.Errorf("line %d: %s has no test %s", i+1, m[1], m[2])
		}
	}
	if rows < 100 {
		t.Errorf("%d rows: the table was not read", rows)
	}
	t.Logf("%d features, %d of them open", rows, open)
}

func hasTest(t *testing.T, folder, name string) bool {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(src), "\nfunc "+path.Base(name)+"(t *testing.T)") {
			return true
		}
	}
	return false
}
