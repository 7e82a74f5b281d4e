package wire_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	. "github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/frames"
)

func TestParseEmbed(t *testing.T) {
	text := func(s ...string) (in []EmbedInput) {
		for _, x := range s {
			in = append(in, EmbedInput{Text: x})
		}
		return in
	}
	with := func(change func(e *Embed)) *Embed {
		e := DefaultEmbed()
		e.ID, e.Inputs = "a", text("x")
		if change != nil {
			change(&e)
		}
		return &e
	}
	for in, want := range map[string]*Embed{
		`"input":"x"`:                   with(nil),
		`"input":["x"]`:                 with(nil),
		`"input":""`:                    with(func(e *Embed) { e.Inputs = text("") }),
		`"input":["x","y"],"model":"m"`: with(func(e *Embed) { e.Inputs, e.Model = text("x", "y"), "m" }),
		`"input":[1,2,3]`:               with(func(e *Embed) { e.Inputs = []EmbedInput{{Tokens: []int32{1, 2, 3}}} }),
		`"input":[[1],"x",[2,3]]`: with(func(e *Embed) {
			e.Inputs = []EmbedInput{{Tokens: []int32{1}},
				{Text: "x"}, {Tokens: []int32{2, 3}}}
		}),
		`"input":"x","dimensions":7`:  with(func(e *Embed) { e.Dimensions = 7 }),
		`"input":"x","normalize":-1`:  with(func(e *Embed) { e.Normalize = NormalizeNone }),
		`"input":"x","truncate":true`: with(func(e *Embed) { e.Truncate = true }),
		`"input":["x"],"query":"q"`: with(func(e *Embed) {
			q := "q"
			e.Query = &q
		}),
		`"input":"x","user":"u"`: with(nil),

		`"input":"x","service_tier":"flex"`: with(func(e *Embed) { e.Priority = PriorityBackground }),

		`"input":"x","encoding_format":"base64","any_dimension":true,"parse_special":true,"priority":"background",` +
			`"metadata":{"a":1}`: with(func(e *Embed) {
			e.Base64, e.AnyDimension, e.ParseSpecial, e.Priority, e.Metadata = true, true, true, PriorityBackground,
				[]byte(`{"a":1}`)
		}),
	} {
		def := DefaultRequest()
		got, err := Parse(new(Parser), []byte(`{"event":"embed","id":"a",`+in+`}`), &def)
		if err != nil || got.Kind != KindEmbed || !reflect.DeepEqual(got.Embed, want) {
			t.Errorf("%s: %+v %v, want %+v", in, got.Embed, err, want)
		}
	}
}

func TestParseEmbedErrors(t *testing.T) {
	for in, says := range map[string]string{
		`"x":1`:                                 `field "x" is not known in an embed request`,
		`"prompt":"x"`:                          `field "prompt" is not known in an embed request`,
		`"model":"x"`:                           `field "input" is missing; it must be a string`,
		`"input":null`:                          `field "input" is missing`,
		`"input":[]`:                            `field "input" is empty`,
		`"input":[[]]`:                          `field "input[0]" is empty`,
		`"input":["x",5]`:                       `field "input[1]" is a number`,
		`"input":[1,"x"]`:                       `field "input[1]" is a string`,
		`"input":[-1]`:                          `field "input[0]" is -1`,
		`"input":"x","dimensions":0`:            `field "dimensions" is 0; it must be an integer of 1…1048576`,
		`"input":["x",[1]],"query":"q"`:         `document 1 is an array; with a query it must be a string`,
		`"input":"x","query":7`:                 `field "query" is a number; it must be a string`,
		`"input":"x","query":"q","normalize":1`: `fields "query" and "normalize" exclude each other`,
		`"input":"x","normalize":65`:            `field "normalize" is 65; it must be an integer of -1…64`,
		`"input":"x","truncate":1`:              `field "truncate" is a number`,
		`"input":"x","encoding_format":"int8"`: `field "encoding_format" is "int8"; it must be one of ["float" ` +
			`"base64"]`,
		`"input":"x","input":"y"`:        `field "input" is given twice`,
		`"input":"x","priority":"later"`: `field "priority"`,
		`"input":["` + strings.Repeat(`x","`, MaxEmbedInputs) + `"]`: `field "input" has 2049 texts; it must have at ` +
			`most 2048`,
	} {
		def := DefaultRequest()
		_, err := Parse(new(Parser), []byte(`{"event":"embed","id":"a",`+in+`}`), &def)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60s: %v, want %q", in, err, says)
		}
	}
	p := &Parser{MaxPromptBytes: 5}
	def := DefaultRequest()
	if _, err := Parse(p, []byte(`{"event":"embed","id":"a","input":["abc","def"]}`), &def); err == nil ||
		!strings.Contains(err.Error(), `field "input" has 6 bytes of text; --max-prompt-bytes is 5`) {
		t.Errorf("%v", err)
	}
	if _, err := Parse(p, []byte(`{"event":"embed","id":"a","input":["a","b"],"query":"cd"}`), &def); err == nil ||
		!strings.Contains(err.Error(), `fields "query" and "input" have 6 bytes of text, the query once for each`) {
		t.Errorf("%v", err)
	}
}

// TestEmbeddingsRoundTrip: values come back as the same bits, as numbers and as base64.
func TestEmbeddingsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Embedding{ID: "a", Index: rapid.IntRange(0, 2047).Draw(t, "index"),
			Row:    rapid.IntRange(-1, 5).Draw(t, "row"),
			Tokens: rapid.IntRange(1, 1<<20).Draw(t, "tokens"), Truncated: rapid.Bool().Draw(t, "truncated")}
		for range rapid.IntRange(1, 500).Draw(t, "n") {
			e.Values = append(e.Values,
				math.Float32frombits(rapid.Uint32().Filter(func(u uint32) bool { return u>>23&0xff != 0xff }).Draw(t,
					"bits")))
		}
		for _, asBase64 := range []bool{false, true} {
			var ev Event
			in := AppendEmbedding(nil, &e, asBase64)[HeaderBytes:]
			if err := new(frames.Parser).ParseEvent(in, &ev); err != nil ||
				ev.Kind != EventEmbedding {
				t.Fatal(err)
			}
			got := ev.Embedding
			got.ID = "a"
			if !slices.EqualFunc(got.Values, e.Values,
				func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a == 0 && b == 0 }) {
				t.Fatalf("base64 %v: %v, want %v", asBase64, got.Values, e.Values)
			}
			got.Values, ev.Embedding.Values = e.Values, nil
			if !reflect.DeepEqual(got, e) {
				t.Fatalf("%+v, want %+v", got, e)
			}
		}
	})
	raw, err := json.Marshal(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)))
	if err != nil || string(raw) != `"`+string(AppendBase64(nil, []float32{1.5}))+`"` {
		t.Errorf("%s %v", raw, err)
	}
	for in, says := range map[string]string{
		`"embedding":"AAAA"`: "base64 of little-endian float32", `"embedding":"AADAfw=="`: "base64",
		`"embedding":[1e40]`: "array of numbers", `"x":1`: "array of numbers",
	} {
		var ev Event
		if err := new(frames.Parser).ParseEvent([]byte(`{"event":"embedding","id":"a","index":0,"tokens":1,`+in+`}`),
			&ev); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", in, err)
		}
	}
}
