package jsontext

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMember(t *testing.T) {
	for _, c := range []struct {
		text         string
		value        string
		found, ended bool
	}{
		{`{"model":"a"}`, "a", true, false},
		{` { "x" : [1,{"model":"no"},"]"] , "y":{"model":"no"}, "model" : "a b" , `, "a b", true, false},
		{`{"mod\u0065l":"\u00e9\n"`, "é\n", true, false},
		{`{"x":"model","y":"\"","model":"z"`, "z", true, false},
		{`{"model":"a","model":"b"}`, "a", true, false},
		{`{"a":1}`, "", false, true},
		{`{}`, "", false, true},
		{`[]`, "", false, true},
		{`"model"`, "", false, true},
		{`{"model":7}`, "", false, true},
		{`{"model":null,"x":1}`, "", false, true},
		{`{"model":{"model":"a"}}`, "", false, true},
		{`{"model" "a"}`, "", false, true},
		{`{1:2}`, "", false, true},
		{"", "", false, false},
		{" ", "", false, false},
		{`{`, "", false, false},
		{`{"mod`, "", false, false},
		{`{"model"`, "", false, false},
		{`{"model":`, "", false, false},
		{`{"model":"a`, "", false, false},
		{`{"model":"a\`, "", false, false},
		{`{"x":[1,2,{"y":"`, "", false, false},
		{`{"x":-1.5e3`, "", false, false},
		{`{"model":"` + strings.Repeat("x", 2*maxMember), "", false, true},
	} {
		value, found, ended := Member([]byte(c.text), "model")
		if value != c.value || found != c.found || ended != c.ended {
			t.Errorf("%.60q: %q, %v, %v; want %q, %v, %v", c.text, value, found, ended, c.value, c.found, c.ended)
		}
	}
}

// FuzzMember holds Member against encoding/json, and a text's beginning against the text.
func FuzzMember(f *testing.F) {
	for _, s := range []string{`{"model":"a"}`, `{"x":[{"model":1}],"model":"b"}`, `{"mod\u0065l":"c"}`,
		`{"a":"\"","model":"d","b":{}}`, `[1]`, `{"model":[]}`} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		value, found, ended := Member(text, "model")
		if found && ended {
			t.Fatal("both found and ended")
		}
		if cut >= 0 && cut < len(text) {
			if v, ok, over := Member(text[:cut], "model"); ok && (!found || v != value) || over && found {
				t.Fatalf("%q: the first %d bytes say %q %v %v, all say %q %v %v", text, cut, v, ok, over, value, found,
					ended)
			}
		}
		var first struct{ raw json.RawMessage }
		if !json.Valid(text) || len(text) > maxMember/2 {
			return
		}
		d := json.NewDecoder(strings.NewReader(string(text)))
		if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
			if found {
				t.Fatalf("%q: found in what is no object", text)
			}
			return
		}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return
			}
			var raw json.RawMessage
			if d.Decode(&raw) != nil {
				return
			}
			if key == "model" {
				first.raw = raw
				break
			}
		}
		var want string
		isString := len(first.raw) > 0 && first.raw[0] == '"' && json.Unmarshal(first.raw, &want) == nil
		if found != isString || value != want {
			t.Fatalf("%q: %q %v, want %q %v", text, value, found, want, isString)
		}
	})
}
