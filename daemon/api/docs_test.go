package api_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/llamaserver"
	"github.com/uma-serve/uma-serve/daemon/api/lmstudio"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
	"github.com/uma-serve/uma-serve/daemon/api/worker"
)

var ticked = regexp.MustCompile("`([^`]+)`")

// documented are the rows of an endpoint's table in docs/http.md: use and remark by field.
func documented(t *testing.T, endpoint string) map[string][2]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "\n### "+endpoint+"\n")
	if !ok {
		t.Fatalf("docs/http.md has no section %s", endpoint)
	}
	if end := regexp.MustCompile(`(?m)^##`).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	rows := map[string][2]string{}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cols := strings.Split(strings.Trim(line, "|\n"), "|")
		name := strings.Trim(strings.TrimSpace(cols[0]), "`")
		if _, twice := rows[name]; twice || len(cols) != 3 {
			t.Errorf("%s: the row of %s is there twice, or has %d columns", endpoint, name, len(cols))
			continue
		}
		rows[name] = [2]string{strings.TrimSpace(cols[1]), strings.TrimSpace(cols[2])}
	}
	return rows
}

// allTables are the tables of all APIs.
func allTables() map[string]api.Table {
	tables := openai.Tables()
	for _, more := range []map[string]api.Table{anthropic.Tables(), llamaserver.Tables(), ollama.Tables(),
		lmstudio.Tables(), worker.Tables()} {
		maps.Copy(tables, more)
	}
	return tables
}

// TestDocumentedTables holds each API's table of fields against docs/http.md.
func TestDocumentedTables(t *testing.T) {
	tables := allTables()
	for _, endpoint := range slices.Sorted(maps.Keys(tables)) {
		if endpoint == "/v1/messages/count_tokens" { // the fields of /v1/messages
			continue
		}
		rows := documented(t, endpoint)
		for _, f := range tables[endpoint] {
			row, ok := rows[f.Name]
			if !ok {
				t.Errorf("%s: %s is not documented", endpoint, f.Name)
				continue
			}
			delete(rows, f.Name)
			use, _, _ := strings.Cut(row[0], ",")
			if use != [...]string{"taken", "ignored", "refused"}[f.Use] {
				t.Errorf("%s: %s is documented as %s", endpoint, f.Name, row[0])
			}
			if f.Use != api.Refused {
				continue
			}
			var but []string
			for _, m := range ticked.FindAllStringSubmatch(row[0], -1) {
				but = append(but, m[1])
			}
			if row[1] != f.Why || !slices.Equal(but, f.But) {
				t.Errorf("%s: %s is documented with %q except %q; the code has %q except %q", endpoint, f.Name, row[1],
					but, f.Why, f.But)
			}
		}
		for name := range rows {
			t.Errorf("%s: %s is documented, and not in the code", endpoint, name)
		}
	}
}

// TestTablesNameNoFieldTwice: the first row would hide the second.
func TestTablesNameNoFieldTwice(t *testing.T) {
	tables := allTables()
	for endpoint, table := range tables {
		seen := map[string]bool{}
		for _, f := range table {
			if seen[f.Name] {
				t.Errorf("%s: %s", endpoint, f.Name)
			}
			seen[f.Name] = true
		}
	}
}
