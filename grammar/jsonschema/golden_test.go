package jsonschema

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path"
	"strings"
	"testing"
)

const goldenDir = "../../../shared/golden/jsonschema/"

// golden reads a compressed file that is not part of the repository.
func golden(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(goldenDir + name)
	if err != nil {
		t.Skipf("%s is not here", name)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// spaced rewrites JSON as json.dumps does.
func spaced(t *testing.T, data []byte) string {
	t.Helper()
	v, err := parseValue(data, 1000)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	var b strings.Builder
	var write func(v *value)
	write = func(v *value) {
		switch v.kind {
		case nullValue:
			b.WriteString("null")
		case boolValue:
			if v.truth {
				b.WriteString("true")
			} else {
				b.WriteString("false")
			}
		case numberValue:
			b.WriteString(v.text)
		case stringValue:
			b.WriteString(quote(v.text))
		case arrayValue:
			b.WriteByte('[')
			for i, it := range v.items {
				if i > 0 {
					b.WriteString(", ")
				}
				write(it)
			}
			b.WriteByte(']')
		case objectValue:
			b.WriteByte('{')
			for i, m := range v.members {
				if i > 0 {
					b.WriteString(", ")
				}
				b.WriteString(quote(m.name) + ": ")
				write(m.value)
			}
			b.WriteByte('}')
		}
	}
	write(v)
	return b.String()
}

// TestSuite runs the official test suite of draft 2020-12: each schema is refused, or its grammar agrees with every
// test.
func TestSuite(t *testing.T) {
	files := tar.NewReader(bytes.NewReader(golden(t, "suite-draft2020-12.tar.gz")))
	v := bytesVocab()
	groups, compiled, wrong := 0, 0, 0
	for {
		h, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if path.Ext(h.Name) != ".json" {
			continue
		}
		data, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		var tests []struct {
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Tests       []struct {
				Description string          `json:"description"`
				Data        json.RawMessage `json:"data"`
				Valid       bool            `json:"valid"`
			} `json:"tests"`
		}
		if err := json.Unmarshal(data, &tests); err != nil {
			t.Fatalf("%s: %v", h.Name, err)
		}
		for _, group := range tests {
			groups++
			g, err := Compile(group.Schema, Options{AnyForm: true}, Limits{})
			if err != nil {
				if testing.Verbose() {
					t.Logf("refused: %s: %s: %v", h.Name, group.Description, err)
				}
				continue
			}
			compiled++
			bad := false
			for _, c := range group.Tests {
				if text := spaced(t, c.Data); accepts(t, g, v, text) != c.Valid {
					t.Errorf("%s: %s: %s: valid %v, and the grammar says otherwise: %.200s", h.Name, group.Description,
						c.Description, c.Valid, text)
					bad = true
				}
			}
			if bad {
				wrong++
			}
		}
	}
	t.Logf("%d groups, %d compiled, %d of them wrong", groups, compiled, wrong)
	if compiled*10 < groups*6 {
		t.Errorf("%d of %d groups compile, want 60 %%", compiled, groups)
	}
}

// TestMaskBench holds the visible schemas of MaskBench to their instances.
func TestMaskBench(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute of schemas")
	}
	data := golden(t, "maskbench-1500.jsonl.gz")
	name := t.TempDir() + "/cases.jsonl"
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	v := bytesVocab()
	passing, total := 0, 0
	for _, c := range readCases(t, name) {
		total++
		g, err := Compile(c.Schema, Options{AnyForm: true}, Limits{})
		if err != nil {
			continue
		}
		passes := true
		for i, test := range c.Tests {
			ok := accepts(t, g, v, spaced(t, test.Data))
			if ok && !test.Valid {
				t.Errorf("%s: instance %d is invalid and was accepted", c.Name, i)
			}
			passes = passes && ok == test.Valid
		}
		if passes {
			passing++
		}
	}
	t.Logf("%d of %d pass", passing, total)
	if passing*100 < total*79 {
		t.Errorf("%d of %d schemas pass, want 79 %%", passing, total)
	}
}
