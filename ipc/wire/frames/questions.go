package frames

import (
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/jsontext"
)

// AppendCancel appends a frame that cancels the request id of the same connection.
func AppendCancel(dst []byte, id string) []byte {
	dst, start := wire.BeginFrame(dst)
	return wire.EndFrame(append(jsontext.AppendHead(dst, `{"event":"cancel","id":`, id), '}'), start)
}

// AppendAdmin appends an admin question of kind k (KindMetrics, KindHealth, KindInfo); id may be "".
func AppendAdmin(dst []byte, k wire.Kind, id string) []byte {
	dst, start := wire.BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"type":`, k.String())
	if id != "" {
		dst = jsontext.AppendHead(dst, `,"id":`, id)
	}
	return wire.EndFrame(append(dst, '}'), start)
}

// AppendEndThink appends a frame that ends the thinking of the request id of the same connection.
func AppendEndThink(dst []byte, id string) []byte {
	dst, start := wire.BeginFrame(dst)
	return wire.EndFrame(append(jsontext.AppendHead(dst, `{"event":"end_think","id":`, id), '}'), start)
}

// AppendWhyQuestion appends a why question; id may be "".
func AppendWhyQuestion(dst []byte, id string, q *wire.WhyQuestion) []byte {
	dst, start := beginQuestion(dst, wire.KindWhy, id)
	if q.Request != "" {
		dst = jsontext.AppendHead(dst, `,"request":`, q.Request)
	} else {
		dst = jsontext.AppendInt(dst, `,"last":`, q.Last)
	}
	return wire.EndFrame(append(dst, '}'), start)
}

// AppendKVQuestion appends a kv question; id may be "".
func AppendKVQuestion(dst []byte, id string, q *wire.KVQuestion) []byte {
	dst, start := beginQuestion(dst, wire.KindKV, id)
	if q.Tree {
		dst = append(dst, `,"tree":true`...)
	}
	if q.Op != wire.KVShow {
		dst = jsontext.AppendHead(dst, `,"op":`, q.Op.String())
		dst = jsontext.AppendHead(dst, `,"target":`, q.Target)
	}
	return wire.EndFrame(append(dst, '}'), start)
}

func beginQuestion(dst []byte, k wire.Kind, id string) (frame []byte, start int) {
	dst, start = wire.BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"event":`, k.String())
	if id != "" {
		dst = jsontext.AppendHead(dst, `,"id":`, id)
	}
	return dst, start
}

// AppendEmbed appends e as a frame. Fields that have their default are left out.
func AppendEmbed(dst []byte, e *wire.Embed) []byte {
	dst, start := wire.BeginFrame(dst)
	dst = jsontext.AppendHead(dst, `{"event":"embed","id":`, e.ID)
	if e.Model != "" {
		dst = jsontext.AppendHead(dst, `,"model":`, e.Model)
	}
	if e.Query != nil {
		dst = jsontext.AppendHead(dst, `,"query":`, *e.Query)
	}
	dst = append(dst, `,"input":[`...)
	for i := range e.Inputs {
		if i > 0 {
			dst = append(dst, ',')
		}
		if in := &e.Inputs[i]; in.Tokens != nil {
			dst = appendTokens(dst, "", in.Tokens)
		} else {
			dst = jsontext.AppendString(dst, in.Text)
		}
	}
	dst = append(dst, ']')
	if e.Base64 {
		dst = append(dst, `,"encoding_format":"base64"`...)
	}
	if e.Dimensions > 0 {
		dst = jsontext.AppendInt(dst, `,"dimensions":`, e.Dimensions)
	}
	if e.Normalize != wire.NormalizeL2 {
		dst = jsontext.AppendInt(dst, `,"normalize":`, e.Normalize)
	}
	for _, f := range []struct {
		set  bool
		text string
	}{
		{e.AnyDimension, `,"any_dimension":true`}, {e.Truncate, `,"truncate":true`},
		{e.ParseSpecial, `,"parse_special":true`},
		{e.Priority == wire.PriorityBackground, `,"priority":"background"`},
	} {
		if f.set {
			dst = append(dst, f.text...)
		}
	}
	if len(e.Metadata) > 0 {
		dst = append(append(dst, `,"metadata":`...), e.Metadata...)
	}
	return wire.EndFrame(append(dst, '}'), start)
}
