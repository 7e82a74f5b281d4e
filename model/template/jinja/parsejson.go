package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// maxJSONNesting bounds the containers of ParseJSON.
const maxJSONNesting = 512

// ParseJSON reads one JSON value as Python's json.loads does: members keep their order, 1 is an integer and 1.0 a
// float.
func ParseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text follows the JSON value")
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if depth == maxJSONNesting {
		return nil, errors.New("the JSON value is nested too deep")
	}
	var v any
	switch token {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			x, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, x)
		}
		v = list
	case json.Delim('{'):
		dict := &Dict{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			x, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			dict.set(key.(string), x)
		}
		v = dict
	default:
		return fromGo(token), nil
	}
	_, err = d.Token()
	return v, err
}
