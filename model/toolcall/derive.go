package toolcall

import (
	"encoding/json"
	"strings"

	"github.com/uma-serve/uma-serve/model/toolcall/stream"
)

// derive makes a syntax from what an unknown template renders for calls. answer is the rendering without the header of
// the assistant's turn. It returns nil where it cannot tell the parts apart; what it returns may be wrong, and is to be
// read back.
func derive(calls []Call, answer string) *Syntax {
	d := deriver{calls: calls, text: answer}
	for _, c := range calls {
		var arguments map[string]any
		if json.Unmarshal([]byte(c.Arguments), &arguments) != nil {
			return nil
		}
		at := strings.Index(d.text[d.end():], c.Name)
		if at < 0 {
			return nil
		}
		d.names = append(d.names, at+d.end())
		if !d.span(arguments) {
			return nil
		}
	}
	f := &Syntax{Name: "derived"}
	switch {
	case d.envelope():
		f.Notation, f.Keys = d.keys()
		d.around(f, true)
	case d.tagged == nil:
		f.Notation = Object
		d.around(f, false)
		d.middle(f, d.text[d.names[0]+len(calls[0].Name):d.spans[0][0]])
	default:
		f.Notation = Tagged
		d.around(f, false)
		d.params(f)
	}
	return f
}

// deriver holds where the probe's texts are.
type deriver struct {
	calls []Call
	text  string
	names []int    // of each call's name
	spans [][2]int // of each call's arguments, or of its whole envelope
	// tagged are, of the first call: the texts before a key, between key and value, and after a value, for each
	// parameter.
	tagged [][3]string
}

// end returns the end of the last call found.
func (d *deriver) end() int {
	if len(d.spans) == 0 {
		return 0
	}
	return d.spans[len(d.spans)-1][1]
}

// span finds the arguments of the call whose name was found last: JSON behind the name, JSON around it, or parameters.
func (d *deriver) span(arguments map[string]any) bool {
	name := d.names[len(d.names)-1]
	for i := name; i >= d.end(); i-- { // around
		if d.text[i] == '{' && i < name {
			if n := d.jsonAt(i); n > 0 && i+n > name && holds(d.text[i:i+n], arguments) {
				d.spans = append(d.spans, [2]int{i, i + n})
				return true
			}
		}
	}
	for i := name; i < len(d.text); i++ {
		if d.text[i] == '{' {
			if n := d.jsonAt(i); n > 0 && holds(d.text[i:i+n], arguments) {
				d.spans = append(d.spans, [2]int{i, i + n})
				return true
			}
		}
	}
	return d.parameters(name, arguments)
}

// jsonAt returns the length of the JSON value at i, or 0.
func (d *deriver) jsonAt(i int) int {
	var j stream.JSON
	for n := i; n < len(d.text); n++ {
		switch j.Step(d.text[n]) {
		case stream.Done:
			return n + 1 - i
		case stream.More:
		default:
			return 0
		}
	}
	return 0
}

// holds reports whether a JSON text holds the arguments, at whatever depth.
func holds(text string, arguments map[string]any) bool {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return false
	}
	return holdsValue(v, arguments)
}

func holdsValue(v any, arguments map[string]any) bool {
	switch v := v.(type) {
	case map[string]any:
		same := len(v) == len(arguments)
		for k, x := range arguments {
			same = same && v[k] == x
		}
		if same {
			return true
		}
		for _, x := range v {
			if holdsValue(x, arguments) {
				return true
			}
		}
	case string: // arguments as text
		return len(v) > 1 && v[0] == '{' && holds(v, arguments)
	}
	return false
}

// envelope reports whether the name is within the JSON.
func (d *deriver) envelope() bool { return d.tagged == nil && d.names[0] > d.spans[0][0] }

// keys returns the members of the first call's envelope.
func (d *deriver) keys() (Notation, Keys) {
	var object map[string]any
	var k Keys
	text := d.text[d.spans[0][0]:d.spans[0][1]]
	if json.Unmarshal([]byte(text), &object) != nil {
		return Envelope, k
	}
	var arguments map[string]any
	json.Unmarshal([]byte(d.calls[0].Arguments), &arguments)
	for key, v := range object {
		if s, ok := v.(string); ok && s == d.calls[0].Name {
			k.Name = []string{key}
		} else if holdsValue(v, arguments) {
			if key == d.calls[0].Name {
				return Keyed, Keys{}
			}
			k.Arguments = []string{key}
		}
	}
	return Envelope, k
}

// lastMarker returns the marker that text ends with, or its last word.
func lastMarker(text string) string {
	for _, b := range [...][2]string{{"<", ">"}, {"[", "]"}} {
		if strings.HasSuffix(text, b[1]) {
			if i := strings.LastIndex(text, b[0]); i >= 0 && !strings.ContainsAny(text[i:], " \n") {
				return text[i:]
			}
			return ""
		}
	}
	return text[strings.LastIndexAny(text, " \n<>[]{}()\"")+1:]
}

// firstMarker returns the marker that text begins with, "" for other text. One in brackets closes something.
func firstMarker(text string) string {
	for _, b := range [...][2]string{{"<", ">"}, {"[/", "]"}} {
		if i := strings.Index(text, b[1]); i >= 0 && strings.HasPrefix(text, b[0]) &&
			!strings.ContainsAny(text[:i], " \n") {
			return text[:i+1]
		}
	}
	return ""
}

// around finds the texts around calls. enveloped: a call is its span; otherwise it begins with its name.
func (d *deriver) around(f *Syntax, enveloped bool) {
	begin := d.names
	if enveloped {
		begin = nil
		for _, s := range d.spans {
			begin = append(begin, s[0])
		}
	}
	head := strings.TrimSpace(d.text[:begin[0]])
	tail := strings.TrimSpace(d.text[d.end():])
	if enveloped {
		head = strings.TrimSpace(strings.TrimSuffix(head, "["))
		tail = strings.TrimSpace(strings.TrimPrefix(tail, "]"))
		if f.Bare = head == ""; !f.Bare {
			f.Open = some(lastMarker(head))
		}
		f.Close = some(firstMarker(tail))
		return
	}
	if len(begin) > 1 {
		between := strings.TrimSpace(d.text[d.spans[0][1]:begin[1]])
		before := commonSuffix(head, between)
		f.Before = some(before)
		f.After = some(between[:len(between)-len(before)])
		f.Open = some(lastMarker(strings.TrimSpace(strings.TrimSuffix(head, before))))
		if len(f.Open) > 0 {
			f.Close = some(firstMarker(strings.TrimSpace(strings.TrimPrefix(tail, first(f.After)))))
		}
		return
	}
	f.Before = some(head)
	f.After = some(firstMarker(tail))
}

// middle divides the text between name and arguments at the call's id.
func (d *deriver) middle(f *Syntax, text string) {
	if id := d.calls[0].ID; id != "" {
		if before, after, found := strings.Cut(text, id); found {
			f.ID, text = some(before), after
		}
	}
	f.Middle = some(text)
}

// parameters finds the parameters of the call whose name was found last.
func (d *deriver) parameters(name int, arguments map[string]any) bool {
	at := name + len(d.calls[0].Name)
	var parts [][3]string
	for range arguments { // in the order of the text
		best, key := -1, ""
		for k := range arguments {
			if i := strings.Index(d.text[at:], k); i >= 0 && (best < 0 || i < best) {
				best, key = i, k
			}
		}
		if best < 0 {
			return false
		}
		value, ok := arguments[key].(string)
		if !ok {
			b, _ := json.Marshal(arguments[key])
			value = string(b)
		}
		keyEnd := at + best + len(key)
		i := strings.Index(d.text[keyEnd:], value)
		if i < 0 {
			return false
		}
		if len(parts) > 0 {
			parts[len(parts)-1][2] = d.text[at : at+best]
		}
		parts = append(parts, [3]string{d.text[at : at+best], d.text[keyEnd : keyEnd+i]})
		at = keyEnd + i + len(value)
	}
	if len(parts) < 2 {
		return false
	}
	open := commonSuffix(parts[0][0], parts[1][0])
	shut := strings.TrimSuffix(parts[0][2], open)
	if open == "" || strings.TrimSpace(shut) == "" || !strings.HasPrefix(strings.TrimSpace(d.text[at:]),
		strings.TrimSpace(shut)) {
		return false
	}
	at += strings.Index(d.text[at:], strings.TrimSpace(shut)) + len(strings.TrimSpace(shut))
	if d.tagged == nil {
		d.tagged = parts
	}
	d.spans = append(d.spans, [2]int{name + len(d.calls[0].Name), at})
	return true
}

// params makes the declaration of the parameters.
func (d *deriver) params(f *Syntax) {
	a, b := d.tagged[0], d.tagged[1]
	open := commonSuffix(a[0], b[0])
	shut := strings.TrimSuffix(a[2], open)
	f.Middle = some(strings.TrimSuffix(a[0], open))
	p := &f.Params
	p.Open, p.Close = some(open), some(shut)
	middle := a[1]
	if a[1] != b[1] { // an attribute tells the type
		n := 0
		for n < len(a[1]) && n < len(b[1]) && a[1][n] == b[1][n] {
			n++
		}
		p.Attr, middle = some(a[1][:n]), commonSuffix(a[1][n:], b[1][n:])
	}
	p.Middle = some(middle)
	if strings.HasSuffix(middle, "\n") && strings.HasPrefix(shut, "\n") {
		p.Pad = "\n"
	}
}

func commonSuffix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	suffix := a[len(a)-n:]
	if i := strings.IndexAny(suffix, "<["); i > 0 {
		return suffix[i:] // not from within the marker before
	}
	return suffix
}

// some returns a list of one text without the white space around it, or nil.
func some(text string) []string {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return []string{text}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
