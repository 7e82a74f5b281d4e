package toolcall

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// cut gives text to a parser that streams, or does not, and cuts the answer off behind it.
func cut(spec *Spec, tools *Tools, text string, stream, ended bool) *Collect {
	var c Collect
	p := NewParser(spec, tools, Options{Stream: stream})
	for i := range len(text) {
		c.Add(p.Push([]byte(text[i : i+1])))
	}
	if ended {
		c.Add(p.Finish())
	} else {
		c.Add(p.Cut())
	}
	return &c
}

// TestCutCalls: wherever an answer with calls is cut off, in every syntax, nothing of a call's notation is text, the
// calls before it are whole, and the cut one is reported as unfinished.
func TestCutCalls(t *testing.T) {
	tools := testTools(t)
	files, _ := filepath.Glob("testdata/syntaxes/*.txt")
	points, wrong := 0, 0
	for _, path := range files {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var name, begun string
			d.ScanArgs(t, "syntax", &name)
			d.MaybeScanArgs(t, "begun", &begun)
			spec := ByName(name).Resolve(nil)
			whole := parse(spec, tools, Options{}, []byte(d.Input))
			if len(whole.Reasons) > 0 || len(whole.Calls) == 0 || begun != "" {
				return d.Expected
			}
			for i := range d.Input {
				for _, stream := range []bool{false, true} {
					got := cut(spec, tools, d.Input[:i], stream, false)
					points++
					text := bytes.TrimRight(got.Text, " \t\r\n")
					if !bytes.HasPrefix(whole.Text, text) || len(got.Calls) > len(whole.Calls) ||
						!slices.Equal(got.Calls, whole.Calls[:len(got.Calls)]) {
						if wrong++; wrong < 10 {
							t.Errorf("%s: stream %v, cut behind %q:\n%s", d.Pos, stream, d.Input[:i], report(got))
						}
					}
					for _, r := range got.Reasons {
						if r != Unfinished {
							t.Errorf("%s: cut behind %q: %s", d.Pos, d.Input[:i], r)
						}
					}
				}
			}
			return d.Expected
		})
	}
	t.Logf("%d of %d cut points are wrong", wrong, points)
}
