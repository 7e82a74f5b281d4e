package lint

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConformance checks docs/conformance.md: each row tells its state, and why if that is not "works"; it names a file
// with an identifier in it and a test that exists, unless what was asked for is missing.
func TestConformance(t *testing.T) {
	root := filepath.Join("..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, doc, _ = bytes.Cut(doc, []byte("\n## "))
	state := regexp.MustCompile(`^\*\*(works\*\*|(partly|otherwise|missing)\*\*: .)`)
	place := regexp.MustCompile("^`([a-z0-9_/.-]+\\.go):([A-Za-z0-9_]+)`$")
	test := regexp.MustCompile("^`([a-z0-9_/-]+)\\.(Test[A-Za-z0-9_]+)`$")
	named := regexp.MustCompile("`([a-z_.]+/[A-Za-z0-9_/.-]+\\.(?:go|txt|yml))`")
	states := map[string]int{}
	for line := range strings.SplitSeq(string(doc), "\n") {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| asked for |") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
		if len(cells) != 4 {
			t.Errorf("%d columns: %s", len(cells), line)
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		asked := cells[0]
		m := state.FindStringSubmatch(cells[1])
		if m == nil {
			t.Errorf("%s: the state is %q, want **works**, or **partly**, **otherwise** or **missing** and why", asked,
				cells[1])
			continue
		}
		word, _, _ := strings.Cut(m[1], "*")
		if states[word]++; word == "missing" {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(cells[1], -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", asked, err)
			}
		}
		if m := place.FindStringSubmatch(cells[2]); m == nil {
			t.Errorf("%s: %s is no `file.go:Identifier`", asked, cells[2])
		} else if src, err := os.ReadFile(filepath.Join(root, m[1])); err != nil {
			t.Errorf("%s: %v", asked, err)
		} else if !regexp.MustCompile(`\b` + m[2] + `\b`).Match(src) {
			t.Errorf("%s: %s has no %s", asked, m[1], m[2])
		}
		if m := test.FindStringSubmatch(cells[3]); m == nil {
			t.Errorf("%s: %s is no `folder.TestName`", asked, cells[3])
		} else if !hasTest(t, filepath.Join(root, m[1]), m[2]) {
			t.Errorf("%s: %s has no test %s", asked, m[1], m[2])
		}
	}
	if states["works"] < 100 || states["otherwise"] == 0 {
		t.Errorf("the table was not read: %v", states)
	}
	t.Logf("%v", states)
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
