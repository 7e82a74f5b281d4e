package jsonschema

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of docs/structured-output.md")

const page = "../../docs/structured-output.md"

// TestPage holds the tables of docs/structured-output.md to the code: keywords, formats and limits.
func TestPage(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, table := range map[string]string{"keywords": keywordTable(), "formats": formatTable(),
		"limits": limitTable(t)} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
		i, j := strings.Index(text, begin), strings.Index(text, end)
		if i < 0 || j < i {
			t.Fatalf("%s: the marks of the table of %s are missing", page, name)
		}
		if text[i+len(begin):j] != table {
			if !*rewrite {
				t.Errorf("%s: the table of %s differs from the code; go test ./grammar/jsonschema -run TestPage "+
					"-rewrite", page, name)
			}
			text = text[:i+len(begin)] + table + text[j:]
		}
	}
	if *rewrite {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func keywordTable() string {
	var b strings.Builder
	b.WriteString("| keywords | what becomes of them | to what extent |\n|---|---|---|\n")
	for _, k := range Keywords {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.Join(k.Names, "`, `"), k.Support, k.Limits)
	}
	return b.String()
}

func formatTable() string {
	var b strings.Builder
	b.WriteString("| format | after |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(formats)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, formats[name].source)
	}
	fmt.Fprintf(&b, "| `%s` | refused |\n", strings.Join(refusedFormats, "`, `"))
	return b.String()
}

// limitTable has the limits of a schema with their defaults, which a Compile fills in, and what they bound.
func limitTable(t *testing.T) string {
	about := map[string]string{
		"Bytes": "bytes of the schema", "Depth": "nesting, of the text and of schemas that are combined",
		"Schemas":      "schemas, those that combinations make included",
		"Alternatives": "shapes of an array or object after `oneOf`, `not` and their like are worked out",
		"Work":         "steps of combining shapes",
	}
	l := Limits{}
	l.fill()
	v := reflect.ValueOf(l)
	var b strings.Builder
	b.WriteString("| limit | default | what it bounds |\n|---|---|---|\n")
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).Type() == reflect.TypeFor[grammar.Limits]() {
			continue
		}
		if about[name] == "" {
			t.Errorf("Limits.%s is not described", name)
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", name, v.Field(i).Int(), about[name])
	}
	return b.String()
}

// TestKeywordsAreRead holds the table of keywords to the sources: each enforced keyword is a string somewhere in them.
func TestKeywordsAreRead(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".go") && !strings.HasSuffix(f.Name(), "_test.go") && f.Name() != "keywords.go" {
			data, err := os.ReadFile(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			source.Write(data)
		}
	}
	for _, k := range Keywords {
		for _, name := range k.Names {
			if read := strings.Contains(source.String(), `"`+name+`"`); k.Support == Enforced && !read {
				t.Errorf("%s is said to be enforced, and nothing reads it", name)
			}
		}
	}
}
