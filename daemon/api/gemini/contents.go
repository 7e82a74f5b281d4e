package gemini

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// openCalls are calls without a response so far, oldest first. Responses need not have the ids of their calls.
type openCalls struct {
	made int
	list []api.Call
}

// add notes a call, and gives it an id if it has none.
func (o *openCalls) add(c api.Call) api.Call {
	o.made++
	if c.ID == "" {
		c.ID = fmt.Sprintf("call_%d", o.made)
	}
	o.list = append(o.list, c)
	return c
}

// answered returns the id of the call that a response belongs to: that of its id, else the oldest of its name.
func (o *openCalls) answered(r *response) (id string) {
	for _, fits := range []func(*api.Call) bool{
		func(c *api.Call) bool { return r.ID != "" && c.ID == r.ID },
		func(c *api.Call) bool { return r.ID == "" && c.Function.Name == r.Name },
	} {
		for i := range o.list {
			if fits(&o.list[i]) {
				id = o.list[i].ID
				o.list = append(o.list[:i:i], o.list[i+1:]...)
				return id
			}
		}
	}
	return r.ID
}

// conversation translates the system instruction and the contents.
func (want *request) conversation(in *body) error {
	if in.System != nil {
		text, err := want.textOf(in.System.Parts, "systemInstruction.parts", "\n\n")
		if err != nil {
			return err
		}
		if text != "" {
			want.Messages = append(want.Messages, api.Message{Role: "system", Content: text})
		}
	}
	open := &openCalls{}
	for i, c := range in.Contents {
		field := fmt.Sprintf("contents[%d]", i)
		var err error
		switch c.Role {
		case "user", "", "function":
			err = want.user(c.Parts, field, open)
		case "model":
			err = want.model(c.Parts, field, open)
		default:
			err = api.Refusef(`field "%s.role" is %.40q; it must be "user" or "model"`, field, c.Role)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// user adds a message for each function response, and then one for the text.
func (want *request) user(parts []part, field string, open *openCalls) error {
	var texts []string
	for i, p := range parts {
		where := fmt.Sprintf("%s.parts[%d]", field, i)
		if p.Response == nil {
			text, err := want.partText(&p, where)
			if err != nil {
				return err
			}
			texts = append(texts, text)
			continue
		}
		text, err := want.result(p.Response, where+".functionResponse")
		if err != nil {
			return err
		}
		want.Messages = append(want.Messages, api.Message{Role: "tool", Content: text, Name: p.Response.Name,
			ToolCallID: open.answered(p.Response)})
	}
	if texts != nil || len(parts) == 0 {
		want.Messages = append(want.Messages, api.Message{Role: "user", Content: strings.Join(texts, "\n")})
	}
	return nil
}

// result returns the text of a response. Google's documentation has "output" for a result and "error" for a failure;
// SDKs put what is not an object into "result".
func (want *request) result(r *response, where string) (string, error) {
	text := string(r.Response)
	if list, ok := membersOf(r.Response); ok && len(list) == 1 {
		var value string
		if json.Unmarshal(list[0].value, &value) == nil {
			switch list[0].name {
			case "output", "result":
				text = value
			case "error":
				text = "Error: " + value
			}
		}
	}
	if len(r.Parts) > 0 {
		more, err := want.textOf(r.Parts, where+".parts", "\n")
		if err != nil {
			return "", err
		}
		text = strings.TrimPrefix(text+"\n"+more, "\n")
	}
	return text, nil
}

// model adds one message with thinking, text and calls.
func (want *request) model(parts []part, field string, open *openCalls) error {
	m := api.Message{Role: "assistant"}
	var texts []string
	for i, p := range parts {
		switch {
		case p.Call != nil:
			if p.Call.Name == "" {
				return api.Refusef(`field "%s.parts[%d].functionCall.name" is missing`, field, i)
			}
			arguments := "{}"
			if p.Call.Args != nil {
				arguments = string(p.Call.Args)
			}
			m.ToolCalls = append(m.ToolCalls, open.add(api.NewCall(p.Call.ID, p.Call.Name, arguments)))
		case p.Thought && p.Text != nil:
			m.Reasoning += *p.Text
		case p.Thought, p.Text != nil && *p.Text == "", p.Text == nil && p.Signature != "" && !p.other():
			// a signature or the end of a stream
		default:
			text, err := want.partText(&p, fmt.Sprintf("%s.parts[%d]", field, i))
			if err != nil {
				return err
			}
			texts = append(texts, text)
		}
	}
	if texts != nil || m.ToolCalls == nil {
		m.Content = strings.Join(texts, "")
	}
	want.Messages = append(want.Messages, m)
	return nil
}

// other reports whether a part has another member than text or a call.
func (p *part) other() bool {
	return p.Data != nil || p.File != nil || p.Code != nil || p.Output != nil || p.Hosted != nil ||
		p.HostedOut != nil || p.Response != nil
}

// textOf returns the text of parts.
func (want *request) textOf(parts []part, where, between string) (string, error) {
	texts := make([]string, len(parts))
	for i := range parts {
		var err error
		if texts[i], err = want.partText(&parts[i], fmt.Sprintf("%s[%d]", where, i)); err != nil {
			return "", err
		}
	}
	return strings.Join(texts, between), nil
}

// partText returns the text of a part; a part that is no text leaves a placeholder. A client sends its history again
// with every request, so that refusing a part would end the conversation for ever.
func (want *request) partText(p *part, where string) (string, error) {
	kind := ""
	switch {
	case p.Text != nil:
		return *p.Text, nil
	case p.Data != nil:
		if text, ok := wire.TextFile(p.Data.MimeType, p.Data.Data); ok {
			return text, nil
		}
		if kind = mediaKind(p.Data.MimeType); kind == "image" || kind == wire.KindAudio {
			return wire.ImagePart(kind, p.Data.Data), nil
		}
	case p.File != nil:
		kind = mediaKind(p.File.MimeType)
	case p.Code != nil:
		return "```" + strings.ToLower(p.Code.Language) + "\n" + p.Code.Code + "\n```", nil
	case p.Output != nil:
		return p.Output.Output, nil
	case p.Hosted != nil, p.HostedOut != nil:
		kind = "call of a server's tool"
	case p.Call != nil:
		return "", api.Refusef(`field "%s.functionCall" belongs to the role "model"`, where)
	case p.Response != nil:
		return "", api.Refusef(`field "%s.functionResponse" belongs to the role "user"`, where)
	default:
		return "", nil // a part of fields that were left out
	}
	text, note := wire.LeftOut(kind)
	want.left.Add(note)
	return text, nil
}

// mediaKind names a medium by its type: "image" of image/png.
func mediaKind(mime string) string {
	switch kind, _, _ := strings.Cut(mime, "/"); {
	case mime == "application/pdf":
		return "PDF document" // docs/adr/0022-pdf-documents.md
	case kind == "image", kind == "audio", kind == "video":
		return kind
	}
	return "file"
}
