package toolcall

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// testTools are the tools of testdata/tools.json.
func testTools(t testing.TB) *Tools {
	t.Helper()
	data, err := os.ReadFile("testdata/tools.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Name, Description string
		Parameters        json.RawMessage
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var tools []Tool
	for _, x := range list {
		tools = append(tools, Tool{Name: x.Name, Description: x.Description, Parameters: x.Parameters})
	}
	return NewTools(tools)
}

// vocabulary has the markers of a syntax as tokens: control tokens, and those of which shown is true as visible ones.
type vocabulary struct {
	texts []string
	shown bool
}

// tokenized is a vocabulary with each marker of a syntax that has the shape of a token.
func tokenized(f *Syntax, shown bool) *vocabulary {
	v := &vocabulary{shown: shown}
	for _, text := range f.texts() {
		for rest := strings.TrimSpace(text); rest != ""; {
			i := strings.IndexAny(rest, "<[")
			if i < 0 {
				break
			}
			rest = rest[i:]
			end := map[byte]string{'<': ">", '[': "]"}[rest[0]]
			n := strings.Index(rest, end)
			if n < 0 {
				break
			}
			if x := rest[:n+1]; !strings.ContainsAny(x, "\" ") && !slices.Contains(v.texts, x) {
				v.texts = append(v.texts, x)
			}
			rest = rest[n+1:]
		}
	}
	return v
}

func (v *vocabulary) Size() int            { return len(v.texts) }
func (v *vocabulary) Text(t int32) string  { return v.texts[t] }
func (v *vocabulary) IsControl(int32) bool { return !v.shown }
func (v *vocabulary) Find(text string) int32 {
	return int32(slices.Index(v.texts, text))
}
func (v *vocabulary) Piece(t int32) []byte {
	if !v.shown {
		return nil
	}
	return []byte(v.texts[t])
}

// pieces divides a text into what a Parser reads for its tokens: the vocabulary's, and single bytes.
func (v *vocabulary) pieces(s *Spec, text string) (out [][]byte) {
next:
	for text != "" {
		for t, x := range v.texts {
			if strings.HasPrefix(text, x) {
				out = append(out, s.Piece(int32(t), v.Piece(int32(t))))
				text = text[len(x):]
				continue next
			}
		}
		out = append(out, []byte(text[:1]))
		text = text[1:]
	}
	return out
}

// parse gives the pieces to a parser and collects what it says.
func parse(spec *Spec, tools *Tools, opt Options, pieces ...[]byte) *Collect {
	var c Collect
	p := NewParser(spec, tools, opt)
	for _, piece := range pieces {
		c.Add(p.Push(piece))
	}
	c.Add(p.Finish())
	return &c
}

// report is a result as the scripts show it.
func report(c *Collect) string {
	var b strings.Builder
	if len(c.Text) > 0 {
		fmt.Fprintf(&b, "text %q\n", c.Text)
	}
	for _, call := range c.Calls {
		fmt.Fprintf(&b, "call %s %s", call.Name, call.Arguments)
		if call.ID != "" {
			fmt.Fprintf(&b, " id=%s", call.ID)
		}
		b.WriteByte('\n')
	}
	for _, r := range c.Reasons {
		fmt.Fprintf(&b, "malformed: %s\n", r)
	}
	return b.String()
}

// Every syntax reads what its family writes, and what it gets wrong; cut anywhere, by text and by tokens, the result is
// the same, and no call of it is broken.
func TestForms(t *testing.T) {
	tools := testTools(t)
	covered := map[string]bool{}
	files, err := filepath.Glob("testdata/syntaxes/*.txt")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				var name, begun string
				d.ScanArgs(t, "syntax", &name)
				d.MaybeScanArgs(t, "begun", &begun)
				f := ByName(name)
				if f == nil {
					d.Fatalf(t, "no syntax %q", name)
				}
				covered[name] = true
				spec := f.Resolve(nil)
				opt := Options{Begun: begun}
				whole := parse(spec, tools, opt, []byte(d.Input))
				for _, c := range whole.Calls {
					if !json.Valid([]byte(c.Arguments)) || c.Arguments[0] != '{' {
						d.Fatalf(t, "broken call: %s", c.Arguments)
					}
				}
				want := report(whole)
				same := func(how string, got *Collect) {
					if r := report(got); r != want {
						t.Errorf("%s: %s\n%s\ngot:\n%s\nwant:\n%s", d.Pos, how, d.Input, r, want)
					}
				}
				for i := range d.Input {
					same(fmt.Sprintf("cut at byte %d", i),
						parse(spec, tools, opt, []byte(d.Input[:i]), []byte(d.Input[i:])))
				}
				var bytes [][]byte
				for i := range len(d.Input) {
					bytes = append(bytes, []byte(d.Input[i:i+1]))
				}
				same("byte by byte", parse(spec, tools, opt, bytes...))
				opt.Stream = true
				same("streamed", parse(spec, tools, opt, bytes...))
				for _, shown := range []bool{false, true} {
					if !shown && d.HasArg("quoted") {
						continue // control tokens are not quoted
					}
					v := tokenized(f, shown)
					s := f.Resolve(v)
					opt.Begun = s.Begun(begun)
					got := parse(s, tools, opt, v.pieces(s, d.Input)...)
					if !shown {
						got.Text = whole.Text // control tokens outside of calls are not shown
					}
					same(fmt.Sprintf("by tokens, shown %v", shown), got)
				}
				return want
			})
		})
	}
	for i := range Syntaxes {
		if !covered[Syntaxes[i].Name] {
			t.Errorf("no case for syntax %q", Syntaxes[i].Name)
		}
	}
}
