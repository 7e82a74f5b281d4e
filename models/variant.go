package models

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	_ "embed"
)

// chatML is the chat template that uma-tiny carries: it drops past thinking.
//
//go:embed train/chatml.jinja
var chatML string

// EmptyThink is a template for WriteVariant. It begins every answer with an empty, closed think block, to measure the
// model without thinking.
const EmptyThink = `{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n<think>\n\n</think>\n\n' }}`

// WriteVariant writes uma-tiny to path with another chat template, which must not be longer than the model's. The
// file's layout remains: a comment in the template fills the remaining space.
func WriteVariant(path, template string) error {
	if len(tiny) == 0 {
		return ErrNone
	}
	own := strings.TrimRight(chatML, "\n")
	if spare := len(own) - len(template); spare >= 4 {
		template += "{#" + strings.Repeat(" ", spare-4) + "#}"
	} else if spare != 0 {
		return fmt.Errorf("the template has %d bytes; at most %d fit", len(template), len(own)-4)
	}
	if bytes.Count(tiny, []byte(own)) != 1 {
		return errors.New("the built-in model does not carry train/chatml.jinja: it was exported with another one")
	}
	return write(path, bytes.Replace(tiny, []byte(own), []byte(template), 1))
}
