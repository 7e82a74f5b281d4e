package syntax

import (
	"cmp"
	"reflect"
	"slices"
)

// Variable is a name that a template reads.
type Variable struct {
	Name string // "x", or "x.y" for an attribute of a name
	// Words are the strings that the template compares it with (==, !=, in, not in), in the order of the template.
	Words []string
}

// Variables returns the names that the template reads anywhere, its own loop variables and macros among them, and the
// attributes that it compares, sorted. They show which variables a template may use; only rendering shows whether a
// value has an effect.
func (t *Tree) Variables() []Variable {
	w := walker{vars: map[string]*Variable{}, seen: map[uintptr]bool{}}
	w.walk(reflect.ValueOf(*t))
	out := make([]Variable, 0, len(w.vars))
	for _, v := range w.vars {
		out = append(out, *v)
	}
	slices.SortFunc(out, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Strings returns the template's texts and string literals, the latter as the template sees them: without quotes and
// escapes.
func (t *Tree) Strings() (out []string) {
	w := walker{vars: map[string]*Variable{}, seen: map[uintptr]bool{}, each: func(s string) { out = append(out, s) }}
	w.walk(reflect.ValueOf(*t))
	return out
}

// The names and texts of interest are near a template's surface and short. Beyond these bounds a template is hostile,
// and the rest is left out.
const (
	maxDepth = 2000 // nested values
	maxChain = 20   // attributes, filters and alternatives around a name
	maxSides = 100  // of a comparison, and words of a variable
)

// walker goes through a tree by reflection, so that a kind of node it does not know is walked like any other.
type walker struct {
	vars map[string]*Variable
	seen map[uintptr]bool // pointers: a shared node is walked once
	each func(string)

	depth int
}

func (w *walker) walk(v reflect.Value) {
	if w.depth > maxDepth {
		return
	}
	w.depth++
	defer func() { w.depth-- }()
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			w.walk(v.Elem())
		}
	case reflect.Pointer:
		if !v.IsNil() && !w.seen[v.Pointer()] {
			w.seen[v.Pointer()] = true
			w.walk(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.walk(v.Index(i))
		}
	case reflect.Struct:
		switch v.Type() {
		case reflect.TypeFor[NameExpr]():
			w.note(v.FieldByName("Name").String(), nil)
		case reflect.TypeFor[CompareExpr]():
			w.compare(v)
		case reflect.TypeFor[Literal](), reflect.TypeFor[TextNode]():
			if s, ok := stringOf(v); ok && w.each != nil {
				w.each(s)
			}
		}
		for i := range v.NumField() {
			w.walk(v.Field(i))
		}
	}
}

// note adds words to those of a name.
func (w *walker) note(name string, words []string) {
	x := w.vars[name]
	if x == nil {
		x = &Variable{Name: name}
		w.vars[name] = x
	}
	for _, word := range words {
		if len(x.Words) < maxSides && !slices.Contains(x.Words, word) {
			x.Words = append(x.Words, word)
		}
	}
}

// compare notes the strings of a comparison at each name that takes part in it.
func (w *walker) compare(v reflect.Value) {
	sides := []reflect.Value{v.FieldByName("First")}
	rest := v.FieldByName("Rest")
	for i := range min(rest.Len(), maxSides) {
		sides = append(sides, rest.Index(i))
	}
	var words []string
	for _, s := range sides {
		words = append(words, literalsOf(s)...)
	}
	words = words[:min(len(words), maxSides)]
	for _, s := range sides {
		for _, name := range sourcesOf(s, maxChain) {
			w.note(name, words)
		}
	}
}

// bareValue dereferences interfaces and pointers.
func bareValue(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

// sourcesOf returns the names whose value an expression may be: x, x|lower, x|default(""), ns.x, x if c else y, x or y.
func sourcesOf(v reflect.Value, chain int) (out []string) {
	v = bareValue(v)
	if !v.IsValid() || chain == 0 {
		return nil
	}
	chain--
	switch v.Type() {
	case reflect.TypeFor[NameExpr]():
		return []string{v.FieldByName("Name").String()}
	case reflect.TypeFor[FilterExpr]():
		return sourcesOf(v.FieldByName("Of"), chain)
	case reflect.TypeFor[AttrExpr]():
		for _, name := range sourcesOf(v.FieldByName("Of"), chain) {
			out = append(out, name+"."+v.FieldByName("Name").String())
		}
	case reflect.TypeFor[CondExpr]():
		return append(sourcesOf(v.FieldByName("Then"), chain), sourcesOf(v.FieldByName("Other"), chain)...)
	case reflect.TypeFor[LogicExpr]():
		return append(sourcesOf(v.FieldByName("Left"), chain), sourcesOf(v.FieldByName("Right"), chain)...)
	}
	return out
}

// literalsOf returns the strings of a literal, or of a list of them.
func literalsOf(v reflect.Value) (out []string) {
	v = bareValue(v)
	if !v.IsValid() {
		return nil
	}
	switch v.Type() {
	case reflect.TypeFor[Literal]():
		if s, ok := stringOf(v); ok {
			out = append(out, s)
		}
	case reflect.TypeFor[ListExpr]():
		items := v.FieldByName("Items")
		for i := range items.Len() {
			out = append(out, literalsOf(items.Index(i))...)
		}
	}
	return out
}

// stringOf returns the string of a literal or of a template's text.
func stringOf(v reflect.Value) (string, bool) {
	s := bareValue(v.Field(0))
	if !s.IsValid() || s.Kind() != reflect.String {
		return "", false
	}
	return s.String(), true
}
