package setup

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCheckTools: one definition that breaks a limit refuses all.
func TestCheckTools(t *testing.T) {
	object := json.RawMessage(`{"type":"object"}`)
	good := Tool{Name: "good", Schema: object}
	many := make([]Tool, MaxTools+1)
	large := make([]Tool, 20)
	for i := range many {
		many[i] = Tool{Name: fmt.Sprint("t", i), Schema: object}
	}
	for i := range large {
		large[i] = Tool{Name: fmt.Sprint("t", i), Schema: object, Description: strings.Repeat("d", MaxToolBytes/2)}
	}
	deep := `{"a":` + strings.Repeat("[", MaxNesting) + strings.Repeat("]", MaxNesting) + `}`
	for _, c := range []struct {
		tools []Tool
		want  string // in the error; "" = they are taken
	}{
		{nil, ""},
		{[]Tool{good, {Name: "a.b-c_D", Schema: object}}, ""},
		{[]Tool{{Name: "q", Schema: json.RawMessage(`{"description":"` + strings.Repeat(`[\"`, 99) + `"}`)}}, ""},
		{many, "more than 128"},
		{large, "more than 262144"},
		{[]Tool{good, good}, `two tools "good"`},
		{[]Tool{{Name: "", Schema: object}}, "must have 1…64"},
		{[]Tool{{Name: strings.Repeat("x", 65), Schema: object}}, "must have 1…64"},
		{[]Tool{{Name: "a\nb", Schema: object}}, "must have 1…64"},
		{[]Tool{{Name: "big", Schema: object, Description: strings.Repeat("d", MaxToolBytes)}}, "the maximum is 32768"},
		{[]Tool{{Name: "deep", Schema: json.RawMessage(deep)}}, "nested more than 64"},
		{[]Tool{{Name: "list", Schema: json.RawMessage(`[]`)}}, "no object"},
		{[]Tool{{Name: "null", Schema: json.RawMessage(`null`)}}, "no object"},
		{[]Tool{{Name: "none"}}, "no object"},
	} {
		err := CheckTools(c.tools)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.200v: %v; want %q", c.tools, err, c.want)
		}
	}
}

// FuzzCheckTools: no definition makes the check panic, and what it takes is a schema.
func FuzzCheckTools(f *testing.F) {
	f.Add("add", `{"type":"object","properties":{"a":{"enum":["]}"]}}}`)
	f.Add("x", `{"a":"\`)
	f.Fuzz(func(t *testing.T, name, schema string) {
		if CheckTools([]Tool{{Name: name, Schema: json.RawMessage(schema)}}) == nil && !json.Valid([]byte(schema)) {
			t.Errorf("%q is taken", schema)
		}
	})
}

// TestCut: a text is cut between characters, with a note.
func TestCut(t *testing.T) {
	if got := Cut("short"); got != "short" {
		t.Errorf("%q", got)
	}
	got := Cut("x" + strings.Repeat("é", MaxResult))
	if len(got) > MaxResult+CutNote || !utf8.ValidString(got) || !strings.Contains(got, "had 524289 bytes") {
		t.Errorf("%d bytes, %q", len(got), got[len(got)-100:])
	}
}
