package toolcall

import "strings"

// Headed reports whether a message's header says that it is a call, or holds one; Named, whether the tool's name is
// there only.
func (s *Spec) Headed() bool { return len(s.heads) > 0 }

// Named: see Headed.
func (s *Spec) Named() bool { return s.Headed() && s.syntax.NameTag != "" }

// TextWithHeader is Text with the header of the message. Where the choice requires a call the header is one that
// templates write, otherwise any that models are known to write.
func (s *Spec) TextWithHeader(tools []Tool, choice Choice, parallel bool) Expr {
	var calls []Expr
	for i := range tools {
		if choice.Mode == Named && tools[i].Name != choice.Name {
			continue
		}
		body := Expr{Args: &Args{Tool: &tools[i]}}
		if !s.Named() {
			body = s.Text(tools[i:i+1], Choice{Mode: choice.Mode, Name: tools[i].Name}, parallel)
		}
		calls = append(calls, Expr{Seq: []Expr{s.header(tools[i].Name, choice.Mode >= Required), body}})
	}
	return Expr{Any: calls}
}

// header describes the header of a call of a tool.
func (s *Spec) header(name string, exact bool) Expr {
	if exact || len(s.channels) == 0 {
		var any []Expr
		for _, head := range s.heads {
			any = append(any, literal(strings.Replace(head, "NAME", name, 1)))
		}
		return Expr{Any: any}
	}
	var channels []Expr
	for _, text := range s.channels {
		channels = append(channels, literal(text))
	}
	to, channel := literal(" "+s.syntax.NameTag+s.syntax.Prefix+name), Expr{Any: channels}
	word := Expr{Pattern: "[A-Za-z0-9_-]{1,16}"}
	typed := Expr{Any: []Expr{{Seq: []Expr{literal(" "), optional(literal(s.typed)), word}},
		{Seq: []Expr{literal(s.typed), word}}, {}}}
	message := firstLiteral(s.middle, s.syntax.Middle)
	return Expr{Any: []Expr{{Seq: []Expr{channel, to, typed, message}}, {Seq: []Expr{to, channel, typed, message}}}}
}
