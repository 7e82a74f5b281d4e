package jsonschema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/grammar"
)

// TestAmbiguousPatternsAreCheap: a number of words that a text can be divided into in many ways, below a maximum
// length, costs few steps a mask.
func TestAmbiguousPatternsAreCheap(t *testing.T) {
	pieces := make([][]byte, 257)
	for i := range 256 {
		pieces[i] = []byte{byte(i)}
	}
	for a := byte('a'); a <= 'z'; a++ {
		for b := byte('a'); b <= 'z'; b++ {
			pieces = append(pieces, []byte{a, b}, []byte{' ', a, b}, []byte{a, b, ',', ' '},
				[]byte{'.', ' ', a, b, '"'})
		}
	}
	v := grammar.NewVocabulary(pieces, []int32{256})
	text := strings.TrimSpace(strings.Repeat("the quick brown fox, jumps over 12 lazy dogs. ", 6)[:220])
	for _, schema := range []string{
		`{"type":"string","maxLength":500,"pattern":"^(\\S+\\s*){1,60}$"}`,
		`{"type":"string","maxLength":400,"pattern":"^\\W*(\\w+\\W*){5,80}$"}`,
		`{"type":"string","minLength":20,"maxLength":250,"pattern":"^(\\w+[ ,.]*){1,50}$"}`,
		`{"type":"string","maxLength":300,"pattern":"(\\w+\\s+){3,}\\w+"}`,
	} {
		g, err := Compile([]byte(schema), Options{}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		m := grammar.NewMatcher(g, v)
		quoted, _ := json.Marshal(text)
		most, sum, before := 0, 0, m.Work()
		for _, b := range quoted {
			m.Mask()
			took := m.Work() - before
			most, sum = max(most, took), sum+took
			if err := m.AcceptBytes([]byte{b}); err != nil {
				t.Fatalf("%s: %v", schema, err)
			}
			before = m.Work()
		}
		t.Logf("%s: %d steps a mask, %d at most", schema, sum/len(quoted), most)
		if sum/len(quoted) > 500 || most > 20_000 {
			t.Errorf("%s: %d steps a mask, %d at most", schema, sum/len(quoted), most)
		}
	}
}
