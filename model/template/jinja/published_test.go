package jinja

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// decode reads JSON as Python does: the order of keys kept, 1 an int and 1.0 a float.
func decode(t testing.TB, data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var value func() any
	value = func() any {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var v any
		switch token {
		case json.Delim('['):
			list := []any{}
			for d.More() {
				list = append(list, value())
			}
			v = list
		case json.Delim('{'):
			var pairs []any
			for d.More() {
				pairs = append(pairs, value(), value())
			}
			v = NewDict(pairs...)
		default:
			return fromGo(token)
		}
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
		return v
	}
	return value()
}

func unzip(t testing.TB, path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// published are chat templates as they come with well-known models, by name.
func published(t testing.TB) map[string]string {
	all := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(unzip(t, "testdata/published/templates.tar.gz"))); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		src, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := strings.CutSuffix(filepath.Base(h.Name), ".jinja"); ok {
			all[name] = string(src)
		}
	}
}

type outcome struct{ Out, Refused, Error *string }

// golden returns the output of Jinja2 for each published template with each conversation.
func golden(t testing.TB) map[string]map[string]outcome {
	var all map[string]map[string]outcome
	if err := json.Unmarshal(unzip(t, "testdata/published/golden.json.gz"), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// conversations are the variables to render with, by name.
func conversations(t testing.TB) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, c := range decode(t, unzip(t, "testdata/published/conversations.json.gz")).([]any) {
		name, _ := c.(*Dict).Get("name")
		vars, _ := c.(*Dict).Get("vars")
		m := map[string]any{}
		for i, k := range vars.(*Dict).keys {
			m[k.(string)] = vars.(*Dict).vals[i]
		}
		all[name.(string)] = m
	}
	return all
}

// pinned is the time the golden outputs were made at.
var pinned = time.Date(2026, 3, 7, 9, 5, 2, 0, time.UTC)

// Every published template gives, byte for byte, what Jinja2 gives, and refuses what Jinja2 refuses.
func TestPublishedTemplatesAsJinja2(t *testing.T) {
	sources, cases, n := published(t), conversations(t), 0
	for name, outcomes := range golden(t) {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Compile(sources[name])
			if err != nil {
				t.Fatal(err)
			}
			for conversation, want := range outcomes {
				n++
				out, err := tmpl.Render(cases[conversation], Limits{}, pinned)
				var raised *Raised
				switch {
				case want.Out != nil && err != nil:
					t.Errorf("%s: %v\nwant %q", conversation, err, *want.Out)
				case want.Out != nil && out != *want.Out:
					t.Errorf("%s:\n got %q\nwant %q", conversation, out, *want.Out)
				case want.Refused != nil && (!errors.As(err, &raised) || raised.Message != *want.Refused):
					t.Errorf("%s: %q, %v\nwant it refused with %q", conversation, out, err, *want.Refused)
				case want.Error != nil && (err == nil || errors.As(err, &raised) || errors.Is(err, ErrLimit)):
					t.Errorf("%s: %q, %v\nwant the error %s", conversation, out, err, *want.Error)
				}
			}
		})
	}
	if n < 2000 {
		t.Errorf("only %d outcomes compared", n)
	}
}
