package jsonschema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// draft is a version of JSON schema, as far as they differ here.
type draft uint8

const (
	unknownDraft draft = iota
	draft4
	draft6
	draft7
	draft2019
	draft2020
)

// draftOf reads a $schema. A meta-schema that is not of json-schema.org may have other keywords: it is unknown.
func draftOf(uri string) draft {
	switch {
	case !strings.Contains(uri, "://json-schema.org/"):
		return unknownDraft
	case strings.Contains(uri, "draft-03"), strings.Contains(uri, "draft-04"):
		return draft4
	case strings.Contains(uri, "draft-06"):
		return draft6
	case strings.Contains(uri, "draft-07"):
		return draft7
	case strings.Contains(uri, "2019-09"):
		return draft2019
	}
	return draft2020
}

// resource is a schema that has a URI: the document itself, and each schema with an $id.
type resource struct {
	root    *value
	uri     string // without a fragment
	draft   draft
	anchors map[string]*place
	dynamic map[string]*place // of $dynamicAnchor; they are anchors too
}

// place is a schema in the document.
type place struct {
	v   *value
	res *resource
	ptr string // JSON pointer from the document's root
}

// document is a schema with what its references can reach.
type document struct {
	root      *resource
	resources map[string]*resource
	byRoot    map[*value]*resource
	nested    bool // there is an $id below the root
}

// mapKeywords hold schemas by name, partKeywords a schema or an array of them. Identifiers elsewhere are none.
var (
	mapKeywords = []string{"properties", "patternProperties", "definitions", "$defs", "dependencies",
		"dependentSchemas"}
	partKeywords = []string{"items", "additionalItems", "prefixItems", "contains", "additionalProperties",
		"propertyNames", "unevaluatedProperties", "unevaluatedItems", "allOf", "anyOf", "oneOf", "not", "if", "then",
		"else"}
)

func newDocument(root *value) *document {
	d := &document{resources: map[string]*resource{}, byRoot: map[*value]*resource{}}
	r := &resource{root: root, draft: draft2020}
	if root.kind == objectValue {
		if s := root.get("$schema"); s != nil && s.kind == stringValue {
			r.draft = draftOf(s.text)
		}
		if id := idOf(root, r.draft); id != "" {
			r.uri, _, _ = strings.Cut(id, "#")
		}
	}
	d.root = r
	d.add(r)
	d.walk(root, r, "")
	return d
}

func (d *document) add(r *resource) {
	r.anchors, r.dynamic = map[string]*place{}, map[string]*place{}
	d.resources[r.uri] = r
	d.byRoot[r.root] = r
}

// idOf returns the $id of a schema, or its id in draft 4; empty when it has none or it is an anchor alone.
func idOf(v *value, dr draft) string {
	name := "$id"
	if dr == draft4 {
		name = "id"
	}
	if id := v.get(name); id != nil && id.kind == stringValue {
		if dr <= draft7 && v.get("$ref") != nil {
			return "" // siblings of $ref count for nothing
		}
		return id.text
	}
	return ""
}

// walk registers the identifiers of the schema v and of those in it.
func (d *document) walk(v *value, r *resource, ptr string) {
	switch v.kind {
	case arrayValue:
		for i, it := range v.items {
			d.walk(it, r, ptr+"/"+strconv.Itoa(i))
		}
	case objectValue:
		r = d.identify(v, r, ptr)
		for _, m := range v.members {
			switch {
			case m.kind < arrayValue:
			case slices.Contains(partKeywords, m.name):
				d.walk(m.value, r, ptr+"/"+m.name)
			case slices.Contains(mapKeywords, m.name) && m.kind == objectValue:
				for _, q := range m.members {
					d.walk(q.value, r, ptr+"/"+m.name+"/"+escapePointer(q.name))
				}
			}
		}
	}
}

// identify registers the identifiers of the schema v and returns the resource that it belongs to.
func (d *document) identify(v *value, r *resource, ptr string) *resource {
	if id := idOf(v, r.draft); id != "" {
		uri, fragment, _ := strings.Cut(resolveURI(r.uri, id), "#")
		if v != r.root && uri != r.uri {
			dr := r.draft
			if s := v.get("$schema"); s != nil && s.kind == stringValue {
				dr = draftOf(s.text)
			}
			if d.resources[uri] == nil {
				r = &resource{root: v, uri: uri, draft: dr}
				d.add(r)
				d.nested = true
			}
		}
		if fragment != "" && !strings.HasPrefix(fragment, "/") {
			r.anchors[fragment] = &place{v, r, ptr}
		}
	}
	for _, name := range []string{"$anchor", "$dynamicAnchor"} {
		if a := v.get(name); a != nil && a.kind == stringValue && a.text != "" {
			p := &place{v, r, ptr}
			r.anchors[a.text] = p
			if name == "$dynamicAnchor" {
				r.dynamic[a.text] = p
			}
		}
	}
	return r
}

// child returns the schema at v, a part of p at the pointer tokens, in the resource that it belongs to.
func (d *document) child(p *place, v *value, tokens ...string) *place {
	c := &place{v: v, res: p.res, ptr: p.ptr}
	for _, t := range tokens {
		c.ptr += "/" + escapePointer(t)
	}
	if d.nested {
		if r := d.byRoot[v]; r != nil {
			c.res = r
		}
	}
	return c
}

// resolve returns the schema that ref, a $ref of p, names.
func (d *document) resolve(p *place, ref string) (*place, error) {
	uri, fragment, _ := strings.Cut(resolveURI(p.res.uri, ref), "#")
	r := d.resources[uri]
	if r == nil {
		return nil, fmt.Errorf("%q is not in this document, and nothing is fetched", ref)
	}
	fragment = unescapeFragment(fragment)
	if fragment != "" && fragment[0] != '/' {
		if a := r.anchors[fragment]; a != nil {
			return a, nil
		}
		return nil, fmt.Errorf("there is no anchor %q", fragment)
	}
	at := &place{v: r.root, res: r}
	if fragment == "" {
		return at, nil
	}
	for _, token := range strings.Split(fragment[1:], "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		var next *value
		switch at.v.kind {
		case objectValue:
			next = at.v.get(token)
		case arrayValue:
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(at.v.items) {
				next = at.v.items[i]
			}
		}
		if next == nil {
			return nil, fmt.Errorf("nothing is at %q", ref)
		}
		at = d.child(at, next, token)
	}
	return at, nil
}

func escapePointer(s string) string {
	if !strings.ContainsAny(s, "~/") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// unescapeFragment decodes the percent escapes of a URI's fragment; other text is unchanged.
func unescapeFragment(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// schemeEnd returns the index of the colon behind a URI's scheme, or -1.
func schemeEnd(s string) int {
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		switch {
		case s[i] == ':' && i > 0:
			return i
		case c >= 'a' && c <= 'z':
		case i > 0 && (s[i] >= '0' && s[i] <= '9' || s[i] == '+' || s[i] == '-' || s[i] == '.'):
		default:
			return -1
		}
	}
	return -1
}

// resolveURI resolves ref against base (RFC 3986, section 5.2), as far as schemas use it.
func resolveURI(base, ref string) string {
	switch {
	case ref == "" || ref[0] == '#':
		return base + ref
	case schemeEnd(ref) > 0:
		return ref
	}
	end := schemeEnd(base)
	prefix, path := base[:end+1], base[end+1:]
	if strings.HasPrefix(path, "//") {
		if i := strings.IndexByte(path[2:], '/'); i >= 0 {
			prefix, path = prefix+path[:i+2], path[i+2:]
		} else {
			prefix, path = prefix+path, ""
		}
	}
	path, _, _ = strings.Cut(path, "?")
	switch {
	case strings.HasPrefix(ref, "//"):
		return base[:end+1] + ref
	case ref[0] != '/':
		ref = path[:strings.LastIndexByte(path, '/')+1] + ref
		if ref[0] != '/' && prefix != "" && strings.Contains(prefix, "//") {
			ref = "/" + ref
		}
	}
	ref, fragment, has := strings.Cut(ref, "#")
	var out []string
	segments := strings.Split(ref, "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(out) > 1 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	ref = strings.Join(out, "/")
	if has {
		ref += "#" + fragment
	}
	return prefix + ref
}
