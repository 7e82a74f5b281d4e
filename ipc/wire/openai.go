package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// OpenAI's API, in terms of this protocol: here a body becomes the payload of a request; openai_answer.go makes chunks of
// events.

// OpenAIWants is what a body asks of its answer beyond what a request of this protocol holds.
type OpenAIWants struct {
	Stream bool // chunks while it runs, not one object at the end
	Usage  bool // stream_options.include_usage
}

// OpenAIOverhead is the most bytes by which a request is longer than the body that it was made of, for an id of
// MaxIDBytes.
const OpenAIOverhead = len(`{"stream":true,"id":"",}`) + 6*MaxIDBytes

// ParseOpenAI turns the body of POST /v1/chat/completions (chat) or /v1/completions into the payload of a request that
// streams and has this id. Each field goes over as the client wrote it and is checked by Parse, from the one table of
// fields; what is refused here has no place there. The error is a RequestError.
func ParseOpenAI(p *Parser, id string, body []byte, chat bool) (payload []byte, w OpenAIWants, err error) {
	refuse := func(code Code, format string, args ...any) ([]byte, OpenAIWants, error) {
		return nil, w, &RequestError{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	defer p.release(body)
	if bad := p.scan.scan(body); bad != "" {
		return refuse(InvalidJSON, "%s", bad)
	}
	in := json.NewDecoder(bytes.NewReader(body))
	if kind := jsonKind(bytes.TrimLeft(body, " \t\r\n")); kind != "an object" {
		return refuse(BadRequest, "the body is %s; it must be a JSON object", kind)
	} else if _, err := in.Token(); err != nil {
		return refuse(InvalidJSON, "%v", err)
	}
	payload = appendString([]byte(`{"stream":true,"id":`), id)
	seen := map[string]bool{}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return refuse(InvalidJSON, "%v", err)
		}
		var raw json.RawMessage
		if err := in.Decode(&raw); err != nil {
			return refuse(InvalidJSON, "%v", err)
		}
		key, _ := name.(string)
		if string(raw) == "null" {
			continue
		}
		pass, err := w.field(key, &raw, chat, seen[key])
		if err != nil {
			return refuse(BadRequest, "%v", err)
		}
		if seen[key] = true; pass {
			payload = append(append(appendString(append(payload, ','), key), ':'), raw...)
		}
	}
	switch {
	case chat && !seen["messages"]:
		return refuse(BadRequest, `field "messages" is missing; it must be an array of {"role":…,"content":…}`)
	case !chat && !seen["prompt"]:
		return refuse(BadRequest, `field "prompt" is missing; it must be a string`)
	}
	if !seen["return_progress"] {
		payload = append(payload, `,"return_progress":false`...) // chunks without choices surprise clients that did not ask
	}
	return append(payload, '}'), w, nil
}

// field reads what is said about the answer and reports whether the field goes over to the request.
func (w *OpenAIWants) field(key string, raw *json.RawMessage, chat, again bool) (pass bool, err error) {
	switch key {
	case "stream":
		if !again {
			return false, unmarshal(key, *raw, &w.Stream, "true or false")
		}
	case "stream_options":
		if !again {
			var options struct {
				IncludeUsage json.RawMessage `json:"include_usage"`
			}
			if err := unmarshal(key, *raw, &options, "an object"); err != nil || options.IncludeUsage == nil {
				return false, err
			}
			return false, unmarshal("stream_options.include_usage", options.IncludeUsage, &w.Usage, "true or false")
		}
	case "id", "metadata": // of OpenAI's own records; nothing of them comes back
		return false, nil
	case "event", "type":
		return false, fmt.Errorf("field %q belongs to the framed protocol; leave it out", key)
	case "messages":
		if !chat {
			return false, fmt.Errorf(`field "messages" belongs to /v1/chat/completions; here it is "prompt"`)
		}
		return true, nil
	case "prompt":
		if chat {
			return false, fmt.Errorf(`field "prompt" belongs to /v1/completions; here it is "messages"`)
		}
		var one []json.RawMessage
		if json.Unmarshal(*raw, &one) == nil {
			if len(one) != 1 || jsonKind(one[0]) != "a string" {
				return false, fmt.Errorf(`field "prompt" is an array; it must be a string, or an array of one string`)
			}
			*raw = one[0]
		}
		return true, nil
	default:
		return true, nil
	}
	return false, fmt.Errorf("field %q is given twice", key)
}

// unmarshal reads a value that must be of dst's type.
func unmarshal(name string, raw json.RawMessage, dst any, must string) error {
	if err := json.Unmarshal(raw, dst); err != nil {
		return fmt.Errorf("field %q is %s; it must be %s", name, jsonKind(raw), must)
	}
	return nil
}

// jsonKind names the type of a JSON value by its first byte.
func jsonKind(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "empty"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 't' || raw[0] == 'f':
		return "a boolean"
	case raw[0] == 'n':
		return "null"
	}
	return "a number"
}
