package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestClientsSkipWithoutRegistry: without npm's registry clients.sh reports that nothing was run and fails nothing.
func TestClientsSkipWithoutRegistry(t *testing.T) {
	read(t, "clients.sh") // the result of the test depends on it
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "./clients.sh")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "SKIPPED: npm's registry does not answer") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLaunchVersions: docs/clients.md names the versions that are installed for a turn, and launch.mjs knows their
// programs.
func TestLaunchVersions(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)`[^|]*\\|[^|]*\\| ?([0-9.]*) ?\\|$").FindAllStringSubmatch(
		read(t, "../docs/clients.md"), -1)
	documented := map[string]string{}
	for _, row := range rows {
		documented[row[1]] = row[2]
	}
	programs := read(t, "clients/agents/launch.mjs")
	for line := range strings.Lines(read(t, "clients/agents/launch.txt")) {
		name, packages, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			continue
		}
		version := packages[max(strings.LastIndex(packages, "@"), strings.LastIndex(packages, "="))+1:]
		if documented[name] != version {
			t.Errorf("%s: launch.txt has version %s, docs/clients.md %q", name, version, documented[name])
		}
		if !strings.Contains(programs, name+": {") && !strings.Contains(programs, "'"+name+"': {") {
			t.Errorf("launch.mjs has no %s", name)
		}
		delete(documented, name)
	}
	for name, version := range documented {
		if version != "" {
			t.Errorf("docs/clients.md has %s %s, which is not in launch.txt", name, version)
		}
	}
}

// TestClientsTable: a failed feature fails the run and is a row with its error; text around the marks stays.
func TestClientsTable(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	read(t, "clients", "table.mjs") // as above
	const before = "# Page\n\n<!-- begin library table: make clients -->\nold\n<!-- end library table -->\n\nMore.\n"
	const works = `{"client":"a","version":"1.2.3","feature":"chat","ok":true,"error":""}` + "\n" +
		`{"client":"a","version":"1.2.3","feature":"stop","ok":true,"error":""}` + "\n"
	const fails = `{"client":"b","version":"2.0.0","feature":"n","ok":false,"error":"one | two\nthree"}` + "\n"
	for name, c := range map[string]struct {
		rows  string
		fails bool
		page  string
	}{
		"works": {works, false, "| a | 1.2.3 | chat; stop | works |\n<!-- end"},
		"fails": {works + fails, true, "| a | 1.2.3 | chat; stop | works |\n| b | 2.0.0 | n | **fails**: one \\| two " +
			"three |\n<!-- end"},
		"empty": {"", true, "|---|---|---|---|\n<!-- end"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			rows, page := filepath.Join(dir, "rows"), filepath.Join(dir, "page.md")
			for path, text := range map[string]string{rows: c.rows, page: before} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), "node", "clients/table.mjs", "library", rows,
				page).CombinedOutput()
			if (err != nil) != c.fails {
				t.Errorf("%v\n%s", err, out)
			}
			got := read(t, page)
			if !strings.HasPrefix(got, "# Page\n\n<!-- begin") || !strings.HasSuffix(got, " -->\n\nMore.\n") ||
				!strings.Contains(got, c.page) || strings.Contains(got, "old") {
				t.Errorf("the page is\n%s", got)
			}
		})
	}
}
