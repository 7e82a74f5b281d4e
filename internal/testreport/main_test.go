package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport runs go test on small packages and reads what becomes of its events.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example\n\ngo 1.24\n",
		"good/a_test.go": "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) { t.Log(\"chatter\") " +
			"}\n\nfunc TestSome(t *testing.T) {\n\tfor range 2 {\n\t\tt.Run(\"part\", func(t *testing.T) { " +
			"t.Skip(\"no such machine here\") })\n\t}\n}\n",
		"bad/a_test.go": "package bad\n\nimport \"testing\"\n\nfunc TestFine(t *testing.T) { t.Log(\"chatter\") " +
			"}\n\nfunc TestWrong(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"2 is not 3\") }) }\n",
		"torn/a_test.go": "package torn\n\nimport \"testing\"\n\nfunc TestPanic(t *testing.T) { panic(\"torn " +
			"apart\") }\n",
		"none/a.go":      "package none\n",
		"open/a_test.go": "package open\n\nfunc unfinished( {\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(packages ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json", "-vet=off"}, packages...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		events, err := cmd.Output()
		if len(events) == 0 {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := report(strings.NewReader(string(events)), &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	all := run("./...")
	for _, want := range []string{
		"ok  \texample/good\t", "FAIL\texample/bad\t", "2 is not 3", "--- FAIL: TestWrong/sub", "panic: torn apart",
		"FAIL\texample/torn\t", "expected ')'",
		"\nSKIPPED, and so not tested:\n  example/good TestSome: no such machine here (2 times)\n",
		"\nthe slowest of 5 packages:\n",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing from\n%s", want, all)
		}
	}
	if strings.Contains(all, "chatter") || strings.Contains(all, "=== RUN   TestFine") {
		t.Errorf("what passed is told at length:\n%s", all)
	}
	if quiet := run("./none"); strings.Contains(quiet, "SKIPPED") {
		t.Errorf("a package without tests is no skipped test:\n%s", quiet)
	}
	var out strings.Builder
	if err := report(strings.NewReader("go: cannot find module\n"), &out); err != nil ||
		out.String() != "go: cannot find module\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
