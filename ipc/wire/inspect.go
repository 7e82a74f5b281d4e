package wire

import (
	"fmt"

	"github.com/valyala/fastjson"
)

// The questions that look inside the server, and the types of their answers. They are asked by people, not per
// token, so their answers are written by encoding/json; both sides share these types.

// MaxLast is the most requests one why question gets, and as many as the server remembers after their end.
const MaxLast = 64

// WhyQuestion asks for the decisions behind requests. Request, when it is not "", names those with this id of the
// asker's (a client's id may have been used again: all that are remembered), or, as "#17", the one with this number of
// the server's. Otherwise the Last newest are meant, running ones included.
type WhyQuestion struct {
	Request string
	Last    int // 1…MaxLast; 0 with Request
}

// KVOp is an operation on cached prefixes.
type KVOp uint8

const (
	KVShow KVOp = iota
	KVDrop
	KVPin
	KVUnpin
	KVSave
)

var kvOps = []string{"show", "drop", "pin", "unpin", "save"}

// String returns the word of the protocol.
func (o KVOp) String() string { return kvOps[o] }

// MaxTargetBytes bounds kv's target.
const MaxTargetBytes = 128

// KVQuestion asks for the contents of the KV cache (KVShow), or for an operation on Target: the name of an entry, or
// "all".
type KVQuestion struct {
	Tree   bool // with KVShow: the tree as text too
	Op     KVOp
	Target string // "" with KVShow
}

// question reads the fields of a why or a kv question; others have no meaning there.
func (d *decoder) question(key string, v *fastjson.Value) (err error) {
	switch {
	case d.kind == KindWhy && key == "request":
		d.why.Request, err = d.name(key, v, MaxIDBytes)
	case d.kind == KindWhy && key == "last":
		var n int64
		n, err = d.integer(key, v, 1, MaxLast)
		d.why.Last = int(n)
	case d.kind == KindKV && key == "tree":
		err = d.boolean(key, v, &d.kv.Tree)
	case d.kind == KindKV && key == "op":
		var i int
		i, err = d.word(key, v, kvOps)
		d.kv.Op = KVOp(i)
	case d.kind == KindKV && key == "target":
		d.kv.Target, err = d.name(key, v, MaxTargetBytes)
	default:
		return nil
	}
	for _, s := range d.asked {
		if err == nil && s == key {
			return fmt.Errorf("field %q is given twice", key)
		}
	}
	d.asked = append(d.asked, key)
	return err
}

// name reads an id or a name: a string or an integer, as clients write ids.
func (d *decoder) name(key string, v *fastjson.Value, limit int) (string, error) {
	must := func() string {
		return fmt.Sprintf("a string of 1…%d bytes without control characters, or an integer", limit)
	}
	switch v.Type() {
	case fastjson.TypeNumber:
		if s := []byte(d.p.json.Number(v)); isInteger(s) && validID(s) {
			return string(s), nil
		}
		return "", outOfRange(key, d.p.json.Number(v), must())
	case fastjson.TypeString:
		s, _ := v.StringBytes()
		if !validID(s) {
			return "", fmt.Errorf("field %q has %d bytes, %s; it must be %s", key, len(s), quoted(s), must())
		}
		return string(s), nil
	}
	return "", wrongType(key, v, must())
}

// finishQuestion checks the constraints between the fields of a question.
func (d *decoder) finishQuestion() error {
	switch w, k := &d.why, &d.kv; {
	case w.Request != "" && w.Last != 0:
		return fmt.Errorf("fields %q and %q are both given; a why question has one of them", "request", "last")
	case d.kind == KindWhy && w.Request == "" && w.Last == 0:
		w.Last = 1
	case k.Op == KVShow && k.Target != "":
		return fmt.Errorf("field %q is given without an op; it goes with op: %q", "target", kvOps[1:])
	case k.Op != KVShow && k.Target == "":
		return fmt.Errorf(`field %q is missing; op %s needs the name of an entry, or "all"`, "target", k.Op)
	case k.Op != KVShow && k.Tree:
		return fmt.Errorf("field %q is given with op %s; it goes with a question that shows", "tree", k.Op)
	}
	return nil
}
