package wire

import (
	"fmt"

	"github.com/valyala/fastjson"
)

const (
	// MaxModelBytes is the longest name of a model in a request. An escape of JSON has at most 6 bytes for one, so that
	// jsontext.Member finds every name.
	MaxModelBytes = 512
	// MaxLoRA is the most adapters of a request.
	MaxLoRA = 16
	// MaxLoRAScale bounds the scale of an adapter, from above and below.
	MaxLoRAScale = 1000
)

// LoRA is an adapter of a request.
type LoRA struct {
	ID    int // its place in the list of adapters
	Name  string
	Scale float32 // without a Name
}

// LoadAdapter asks for an adapter to be loaded.
type LoadAdapter struct {
	Model   string  `json:"model,omitempty"` // "" = the default one
	Name    string  `json:"name"`
	File    string  `json:"file"` // absolute
	Scale   float32 `json:"scale"`
	Replace bool    `json:"replace,omitempty"` // an adapter of this name gives way
}

// readLoRA takes llama-server's list of {"id": 0, "scale": 0.5}. Adapters that it leaves out do not apply.
func readLoRA(d *decoder, name string, v *fastjson.Value) error {
	list, err := v.Array()
	if err != nil {
		return wrongType(name, v, `an array of {"id": 0, "scale": 1}`)
	}
	if len(list) > MaxLoRA {
		return fmt.Errorf("field %q has %d entries; the maximum is %d", name, len(list), MaxLoRA)
	}
	d.req.LoRA = make([]LoRA, len(list))
	for i, e := range list {
		at := entry(name, i)
		obj, err := e.Object()
		if err != nil {
			return wrongType(at, e, `an object {"id": 0, "scale": 1}`)
		}
		l := LoRA{ID: -1}
		for _, key := range []string{"id", "scale"} {
			v := obj.Get(key)
			if v == nil {
				return fmt.Errorf("field %q has no %q", at, key)
			}
			if key == "id" {
				id, err := d.integer(at+".id", v, 0, 1<<16)
				if err != nil {
					return err
				}
				l.ID = int(id)
			} else if err := d.float(at+".scale", v, -MaxLoRAScale, MaxLoRAScale, &l.Scale); err != nil {
				return err
			}
		}
		d.req.LoRA[i] = l
	}
	return nil
}

// ParseLoRA reads a list of adapters, as the field "lora" has it.
func ParseLoRA(text []byte) ([]LoRA, error) {
	p := Parser{}
	root, bad := p.json.Parse(text)
	if bad != "" {
		return nil, &RequestError{Code: InvalidJSON, Message: bad}
	}
	d := decoder{p: &p, payload: text, req: new(Request)}
	if err := readLoRA(&d, "lora", root); err != nil {
		return nil, &RequestError{Code: BadRequest, Message: err.Error()}
	}
	return d.req.LoRA, nil
}

// readLoRAPath takes SGLang's name of an adapter, or a list of one.
func readLoRAPath(d *decoder, name string, v *fastjson.Value) error {
	names, err := d.texts(name, v, 1, MaxModelBytes, true)
	if err == nil && len(names) == 1 && names[0] != "" {
		d.req.LoRA = []LoRA{{Name: names[0]}}
	}
	return err
}
