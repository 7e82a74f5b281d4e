package config

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// defaultsFlag is --defaults: members of several JSON objects, later ones before earlier ones.
type defaultsFlag struct {
	text *string
	set  bool // Set was called
}

func (f *defaultsFlag) Set(text string) error {
	if !f.set {
		*f.text, f.set = "", true
	}
	merged, err := MergeDefaults(*f.text, text)
	if err == nil {
		_, err = wire.DefaultsWith([]byte(merged))
	}
	if err != nil {
		return err
	}
	*f.text = merged
	return nil
}

func (f *defaultsFlag) String() string { return *f.text }

// Type implements pflag.Value.
func (f *defaultsFlag) Type() string { return "json" }

// MergeDefaults returns a JSON object with the members of both, that of over where both have one. An empty text is an
// empty object; the result of two is empty.
func MergeDefaults(under, over string) (string, error) {
	all := map[string]json.RawMessage{}
	for _, text := range []string{under, over} {
		if text == "" {
			continue
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &members); err != nil || members == nil {
			return "", fmt.Errorf("it must be a JSON object of fields of requests, such as {\"temperature\":0.2}")
		}
		for name, v := range members {
			all[name] = v
		}
	}
	if len(all) == 0 {
		return "", nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(all); err != nil { // of valid JSON
		return "", err
	}
	return string(bytes.TrimSpace(b.Bytes())), nil
}
