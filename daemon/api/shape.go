package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// Opener is a type with members that are kept as JSON and decoded later: Opens returns a value of the type, or of the
// elements' type, of each.
type Opener interface{ Opens() map[string]any }

// shapes has the shapes of types.
var shapes struct {
	sync.Mutex
	of map[reflect.Type]*wire.Shape
}

// ShapeOf returns the members of the bodies that are decoded into some structs.
func ShapeOf(bodies ...any) *wire.Shape {
	all := &wire.Shape{Inner: map[string]*wire.Shape{}}
	for _, b := range bodies {
		s := shapeOf(b)
		all.Read, all.Ignored = append(all.Read, s.Read...), append(all.Ignored, s.Ignored...)
		maps.Copy(all.Inner, s.Inner)
	}
	return all
}

// shapeOf returns the members that package json decodes into dst, a pointer to a struct. A struct's fields _ have tags
// for what it does not decode: `ignored:"a,b"` names members that cannot change an answer, `kinds:"a,b"` the values of
// "type" for which the members are listed; an object without a type has the empty one.
func shapeOf(dst any) *wire.Shape {
	shapes.Lock()
	defer shapes.Unlock()
	if shapes.of == nil {
		shapes.of = map[reflect.Type]*wire.Shape{}
	}
	return shapeOfType(reflect.TypeOf(dst))
}

var rawType = reflect.TypeFor[json.RawMessage]()

func shapeOfType(t reflect.Type) *wire.Shape {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t != rawType {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	if s := shapes.of[t]; s != nil {
		return s
	}
	s := &wire.Shape{Inner: map[string]*wire.Shape{}}
	shapes.of[t] = s // before its fields: types may hold themselves
	addFields(s, t)
	if o, ok := reflect.New(t).Interface().(Opener); ok {
		for name, v := range o.Opens() {
			s.Inner[name] = shapeOfType(reflect.TypeOf(v))
		}
	}
	return s
}

func addFields(s *wire.Shape, t reflect.Type) {
	for f := range t.Fields() {
		if f.Name == "_" {
			if list := f.Tag.Get("ignored"); list != "" {
				s.Ignored = append(s.Ignored, strings.Split(list, ",")...)
			}
			if list, ok := f.Tag.Lookup("kinds"); ok {
				s.Kinds = append(s.Kinds, strings.Split(list, ",")...)
			}
			continue
		}
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous && f.Tag.Get("json") == "" {
			addFields(s, f.Type)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		s.Read = append(s.Read, name)
		if inner := shapeOfType(f.Type); inner != nil {
			s.Inner[name] = inner
		}
	}
}
