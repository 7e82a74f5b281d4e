package toolcall

import (
	"fmt"
	"strings"
	"testing"
)

// eventsOf reads calls that are written as name(arguments), in the parts that "|" separates: each part is one Pass.
func eventsOf(text string) (passes [][]Event) {
	index := 0
	for _, part := range strings.Split(text, "|") {
		var events []Event
		for part != "" {
			switch i := strings.IndexAny(part, "()"); {
			case i < 0:
				events, part = append(events, Event{Kind: Arguments, Index: index, Text: []byte(part)}), ""
			case part[i] == '(':
				events, part = append(events, Event{Kind: Start, Index: index, Name: part[:i]}), part[i+1:]
			default:
				if i > 0 {
					events = append(events, Event{Kind: Arguments, Index: index, Text: []byte(part[:i])})
				}
				events, part = append(events, Event{Kind: End, Index: index}), part[i+1:]
				index++
			}
		}
		passes = append(passes, events)
	}
	return passes
}

func TestDistinct(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"f(a)", "f(a)"},
		{"f(|a|b|)", "f(|a|b|)"},
		{"f(ab)|f(a|b|)", "f(ab)||| repeated"},
		{"f(ab)|f(a|c|d)", "f(ab)||f(ac|d)"},
		{"f(ab)|f(ab|c)", "f(ab)||f(abc)"},
		{"f(ab)|f(a)", "f(ab)|f(a)"},
		{"f(ab)|g(a|b)", "f(ab)|g(a|b)"},
		{"f()f()", "f() repeated"},
		{"f(a)f(b)g(a)f(b)g(c)", "f(a)f(b)g(a) repeated"},
		{"f(a)f(b)f(c)", "f(a)f(b)f(c)"},
	} {
		var d Distinct
		var got []string
		over := ""
		for _, events := range eventsOf(c.in) {
			out, repeated := d.Pass(events)
			var b strings.Builder
			for _, e := range out {
				switch e.Kind {
				case Start:
					fmt.Fprintf(&b, "%s(", e.Name)
				case Arguments:
					b.Write(e.Text)
				case End:
					b.WriteByte(')')
				}
			}
			if got = append(got, b.String()); repeated {
				over = " repeated"
				break
			}
		}
		if text := strings.Join(got, "|") + over; text != c.want {
			t.Errorf("%s: %s, want %s", c.in, text, c.want)
		}
	}
}

// A call that is cut off while it is held back is given, so that its client learns of it.
func TestDistinctGivesACutCall(t *testing.T) {
	var d Distinct
	d.Pass(eventsOf("f(ab)")[0])
	d.Pass(eventsOf("f(a")[0])
	out, repeated := d.Pass([]Event{{Kind: Malformed, Index: 0, Reason: Unfinished}})
	if len(out) != 3 || out[0].Kind != Start || string(out[1].Text) != "a" || out[2].Reason != Unfinished || repeated {
		t.Errorf("%v, %v", out, repeated)
	}
}
