package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestReadPrompts: the forms of "prompt".
func TestReadPrompts(t *testing.T) {
	id := func(n int32) promptPart { return promptPart{token: n, isID: true} }
	for in, want := range map[string][]Input{
		`"x"`:                   {{Text: "x"}},
		`["x"]`:                 {{Text: "x"}},
		`["x","y"]`:             {{Text: "x"}, {Text: "y"}},
		`[1,2]`:                 {{parts: []promptPart{id(1), id(2)}}},
		`[1,"a",2]`:             {{parts: []promptPart{id(1), {text: "a"}, id(2)}}},
		`[[1],["a",2]]`:         {{parts: []promptPart{id(1)}}, {parts: []promptPart{{text: "a"}, id(2)}}},
		`{"prompt_string":"x"}`: {{Text: "x"}},
		`[[1],{"prompt_string":"y","multimodal_data":[]}]`: {{parts: []promptPart{id(1)}}, {Text: "y"}},
		`[[1],"y"]`: {{parts: []promptPart{id(1)}}, {Text: "y"}},
	} {
		if got, err := ReadPrompts(json.RawMessage(in)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		``: `"prompt" is missing`, `""`: `"prompt" is empty`, `[]`: `"prompt" is empty`, `7`: `must be a string`,
		`{}`: `{"prompt_string":…}`, `[{"prompt_string":"x","multimodal_data":["AA=="]}]`: `reads text`,
		`[-1]`: `token id`, `[1.5]`: `token id`, `[1e99]`: `token id`, `[1,[2]]`: `token id`, `["a",[]]`: `"prompt[1]"`,
		`["a",""]`: `"prompt[1]" is empty`, `[{}]`: `"prompt[0]"`, `[1,null]`: `token id`,
	} {
		var raw json.RawMessage
		if in != "" {
			raw = json.RawMessage(in)
		}
		if got, err := ReadPrompts(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
}
