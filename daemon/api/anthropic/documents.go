package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// unread returns the text in the place of a block that is not text: a document's text, or a placeholder. A client sends
// its history again with every request, so that refusing a block would end the conversation for ever.
func (want *request) unread(b *block, where string) (string, error) {
	switch b.Type {
	case "":
		return "", api.Refusef(`field "%s.type" is missing`, where)
	case "tool_reference":
		return wire.ToolReference(b.ToolName), nil
	case "document", "search_result":
		if text, ok := want.documentText(b, where); ok {
			if b.Title != "" {
				text = b.Title + "\n" + text
			}
			return text, nil
		}
	}
	kind := b.Type
	var source struct {
		Type, Data, URL string
		MediaType       string `json:"media_type"`
	}
	if kind == "image" && json.Unmarshal(b.Source, &source) == nil {
		if data, ok := wire.SourceImage(source.Type, source.Data, source.URL); ok {
			return wire.ImagePart(kind, data), nil
		}
	}
	if kind == "document" && json.Unmarshal(b.Source, &source) == nil && source.MediaType == "application/pdf" {
		kind = "PDF document" // docs/adr/0022-pdf-documents.md
	}
	text, note := wire.LeftOut(kind)
	want.left.Add(note)
	return text, nil
}

// documentText returns the text of a document or a search result that is text.
func (want *request) documentText(b *block, where string) (string, bool) {
	content := b.Content
	if content == nil {
		var source struct {
			Type, Data string
			MediaType  string `json:"media_type"`
			Content    rawJSON
		}
		if json.Unmarshal(b.Source, &source) != nil {
			return "", false
		}
		switch source.Type {
		case "text":
			return source.Data, true
		case "base64":
			return wire.TextFile(source.MediaType, source.Data)
		}
		content = source.Content
	}
	if content == nil {
		return "", false
	}
	text, err := want.textOf(content, where+".content", "\n")
	return text, err == nil
}

// references returns the content of a tool's result as parts, if it refers to tools: package wire puts the tools'
// definitions into their places.
func (want *request) references(raw rawJSON, where string) (parts []wirePart, err error) {
	var blocks []block
	refers := func(b block) bool { return b.Type == "tool_reference" }
	if json.Unmarshal(raw, &blocks) != nil || !slices.ContainsFunc(blocks, refers) {
		return nil, nil
	}
	for i, b := range blocks {
		p := wirePart{Type: "text", Text: b.Text}
		switch {
		case refers(b):
			p = wirePart{Type: b.Type, ToolName: b.ToolName}
		case b.Type != "text":
			if p.Text, err = want.unread(&b, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return nil, err
			}
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// blocksOf parses content; a string is one block of text.
func blocksOf(raw rawJSON, field string) (blocks []block, err error) {
	var text string
	switch {
	case raw == nil:
		return nil, api.Refusef(`field %q is missing; it must be a string or an array of blocks`, field)
	case json.Unmarshal(raw, &text) == nil:
		return []block{{Type: "text", Text: text}}, nil
	case json.Unmarshal(raw, &blocks) != nil:
		return nil, api.Refusef(`field %q must be a string or an array of blocks`, field)
	}
	return blocks, nil
}

// textOf returns the text of a string or of blocks of text; absent content is an empty text.
func (want *request) textOf(raw rawJSON, field, between string) (string, error) {
	if raw == nil {
		return "", nil
	}
	blocks, err := blocksOf(raw, field)
	if err != nil {
		return "", err
	}
	texts := make([]string, len(blocks))
	for i, b := range blocks {
		if texts[i] = b.Text; b.Type != "text" {
			if texts[i], err = want.unread(&b, fmt.Sprintf("%s[%d]", field, i)); err != nil {
				return "", err
			}
		}
	}
	return strings.Join(texts, between), nil
}
