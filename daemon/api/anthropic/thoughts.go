package anthropic

import (
	"encoding/base64"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// thoughts says how an answer shows the model's thinking.
type thoughts int

const (
	shown  thoughts = iota // blocks with the text
	sealed                 // blocks without it; their signature has it
	hidden                 // no blocks; the next call has the thought
)

// wants says in what form a request wants its answer.
type wants struct {
	stream   bool // of events
	thoughts thoughts
}

// shows decides how thinking is shown. Programs that do not ask for thinking read the text of the first block, so they
// get none: docs/adr/0028-anthropic-thoughts.md.
func (t *thinking) shows() (thoughts, error) {
	switch {
	case t == nil:
		return hidden, nil
	case t.Display == nil || *t.Display == "summarized":
		return shown, nil
	case *t.Display == "omitted":
		return sealed, nil
	}
	return shown, api.Refusef(`field "thinking.display" is %.40q; it must be "summarized" or "omitted"`, *t.Display)
}

// signature is the signature of thinking blocks with text. This server does not check it.
const signature = "uma1"

// sealPrefix begins the signature of a block without text: the thought follows in base64.
const sealPrefix = signature + ":"

func seal(thought string) string {
	return sealPrefix + base64.StdEncoding.EncodeToString([]byte(thought))
}

// thought returns the text of a thinking block that a client sends back. Another server's signature has no text for us.
func (b *block) thought() string {
	text, ok := strings.CutPrefix(b.Signature, sealPrefix)
	if b.Thinking != "" || !ok {
		return b.Thinking
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(raw), "\ufffd")
}
