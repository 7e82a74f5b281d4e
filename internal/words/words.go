// Package words writes structs as words of a line of text, and reads them again. Tags of the fields say how, so that a
// recording has every field that its struct has:
//
//	type token struct {
//		Req      uint64        `words:"request id,first"` // 7
//		Outcome  Outcome       `words:",always"`          // ok
//		Took     time.Duration `words:"took"`             // took=3ms
//		Rows     int           `words:"rows,min=1"`       // rows=2
//		Thinking bool          `words:"think"`            // think
//		Next     []int         `words:"next"`             // next=3,8
//	}
//
// A tag begins with the key of KEY=VALUE, or of a bool's word. Without a key the value stands alone. Behind the key:
//
//	first      the first word of the line, without the key, which must be there; the key says in errors what it is
//	always     written even if it is zero; other fields are left out then
//	min=N      the least value of an integer that is read, 0 without it
//	pair       a bool is KEY=true
//
// The fields of an embedded struct, or of a pointer to one, are the struct's own. An array of structs has a key for
// each element, which precedes the keys of its fields. A slice of integers ascends from 1 on. A field without a tag is
// no part of the text. A type that implements Word writes and reads its text itself.
package words

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Word is implemented by pointers to values that have their own text, without a space in it.
type Word interface {
	AppendWord(dst []byte) []byte
	// SetWord reads the text; the error says what is wrong with it.
	SetWord(text string) error
}

// Codec writes and reads values of type T. It is immutable.
type Codec[T any] struct {
	fields []field
	inner  []int // index of an embedded pointer, which a value that is read needs
}

// field is one field of the text.
type field struct {
	path   []int // indexes of reflect.Value.Field; embedded pointers are followed
	key    string
	word   bool // it implements Word
	flag   bool
	first  bool
	always bool
	min    int64
	max    int64
}

var (
	wordType     = reflect.TypeFor[Word]()
	durationType = reflect.TypeFor[time.Duration]()
)

// Of returns the codec of struct T. It panics when a tag or the type of a field is not understood.
func Of[T any]() *Codec[T] {
	c := &Codec[T]{}
	t := reflect.TypeFor[T]()
	c.fields = collect(t, nil, "")
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type.Kind() == reflect.Pointer {
			c.inner = append(c.inner, i)
		}
	}
	return c
}

// collect returns the fields of t, which is reached by path and whose keys begin with prefix.
func collect(t reflect.Type, path []int, prefix string) (out []field) {
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(append([]int(nil), path...), i)
		if sf.Anonymous {
			inner := sf.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			out = append(out, collect(inner, at, prefix)...)
			continue
		}
		tag, ok := sf.Tag.Lookup("words")
		if !ok {
			continue
		}
		if sf.Type.Kind() == reflect.Array {
			for j, key := range strings.Split(tag, ",") {
				out = append(out, collect(sf.Type.Elem(), append(append([]int(nil), at...), j), prefix+key)...)
			}
			continue
		}
		out = append(out, newField(sf, at, prefix, tag))
	}
	return out
}

func newField(sf reflect.StructField, path []int, prefix, tag string) field {
	key, options, _ := strings.Cut(tag, ",")
	f := field{path: path, max: math.MaxInt32, word: reflect.PointerTo(sf.Type).Implements(wordType)}
	if key != "" {
		f.key = prefix + key
	}
	kind := sf.Type.Kind()
	f.flag = kind == reflect.Bool
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		var err error
		switch name {
		case "":
		case "first":
			f.first, f.always, f.min = true, true, 1
		case "always":
			f.always = true
		case "pair":
			f.flag = false
		case "min":
			f.min, err = strconv.ParseInt(value, 10, 64)
		default:
			err = fmt.Errorf("option %q", option)
		}
		if err != nil {
			panic(fmt.Sprintf("words: field %s: %v", sf.Name, err))
		}
	}
	switch kind {
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int64, reflect.Float64:
	case reflect.Uint8:
		f.max = math.MaxUint8
	case reflect.Uint32:
		f.max = math.MaxUint32
	case reflect.Uint64: // of which all values are read
	default:
		if !f.word && (kind != reflect.Slice || sf.Type.Elem().Kind() != reflect.Int) {
			panic(fmt.Sprintf("words: field %s has type %v", sf.Name, sf.Type))
		}
	}
	return f
}

// at returns the field's value in v.
func (f *field) at(v reflect.Value) reflect.Value {
	for _, i := range f.path {
		switch v.Kind() {
		case reflect.Pointer:
			v = v.Elem().Field(i)
		case reflect.Array:
			v = v.Index(i)
		default:
			v = v.Field(i)
		}
	}
	return v
}

// Append appends v's fields, each after a space. It allocates nothing when dst has room.
func (c *Codec[T]) Append(dst []byte, v *T) []byte {
	root := reflect.ValueOf(v).Elem()
	for i := range c.fields {
		f := &c.fields[i]
		x := f.at(root)
		if !f.always && x.IsZero() {
			continue
		}
		dst = append(dst, ' ')
		if f.key != "" && !f.first {
			if dst = append(dst, f.key...); f.flag {
				continue
			}
			dst = append(dst, '=')
		}
		dst = f.append(dst, x)
	}
	return dst
}

func (f *field) append(dst []byte, x reflect.Value) []byte {
	if f.word {
		return x.Addr().Interface().(Word).AppendWord(dst)
	}
	switch x.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(dst, x.Bool())
	case reflect.String:
		return append(dst, x.String()...)
	case reflect.Float64:
		return strconv.AppendFloat(dst, x.Float(), 'g', -1, 64)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(dst, x.Uint(), 10)
	case reflect.Slice:
		for i := range x.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, x.Index(i).Int(), 10)
		}
		return dst
	}
	if x.Type() == durationType {
		return AppendDuration(dst, time.Duration(x.Int()))
	}
	return strconv.AppendInt(dst, x.Int(), 10)
}

// AppendDuration appends d without loss in the largest unit that keeps it a whole number.
func AppendDuration(dst []byte, d time.Duration) []byte {
	units := [...]struct {
		d    time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}}
	for _, u := range units {
		if d%u.d == 0 {
			return append(strconv.AppendInt(dst, int64(d/u.d), 10), u.name...)
		}
	}
	return append(strconv.AppendInt(dst, int64(d), 10), "ns"...)
}

// Read sets v's fields from the words of a line. Errors name the word.
func (c *Codec[T]) Read(v *T, line []string) error {
	root := reflect.ValueOf(v).Elem()
	for _, i := range c.inner {
		if f := root.Field(i); f.IsNil() {
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
	for i := range c.fields {
		f := &c.fields[i]
		if !f.first {
			continue
		}
		if len(line) == 0 {
			return fmt.Errorf("the %s is missing", f.key)
		}
		if f.set(f.at(root), line[0]) != nil || f.at(root).IsZero() {
			return fmt.Errorf("%q is no %s", line[0], f.key)
		}
		line = line[1:]
	}
	for _, word := range line {
		if err := c.word(root, word); err != nil {
			return err
		}
	}
	return nil
}

// word reads one word of a line.
func (c *Codec[T]) word(root reflect.Value, word string) error {
	key, value, pair := strings.Cut(word, "=")
	var bare *field // takes a value without a key
	for i := range c.fields {
		switch f := &c.fields[i]; {
		case f.first:
		case f.key == "":
			bare = f
		case f.key == key && f.flag && !pair:
			f.at(root).SetBool(true)
			return nil
		case f.key == key && pair && !f.flag:
			return f.set(f.at(root), value)
		}
	}
	if bare != nil && !pair {
		return bare.set(bare.at(root), word)
	}
	return UnknownError(word)
}

// UnknownError is Read's error for a word that no field has.
type UnknownError string

func (e UnknownError) Error() string { return fmt.Sprintf("%q is not understood", string(e)) }

// set reads the value's text.
func (f *field) set(x reflect.Value, text string) (err error) {
	if f.word {
		return x.Addr().Interface().(Word).SetWord(text)
	}
	switch x.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		x.SetBool(b)
		return err
	case reflect.String:
		x.SetString(text)
		return nil
	case reflect.Float64:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%s=%q must be a finite number", f.key, text)
		}
		x.SetFloat(v)
		return nil
	case reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		x.SetUint(n)
		return err
	case reflect.Slice:
		return f.setList(x, text)
	}
	if x.Type() == durationType {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("%s=%q must be a duration such as 30ms, not negative", f.key, text)
		}
		x.SetInt(int64(d))
		return nil
	}
	n, err := f.number(text, f.min)
	switch {
	case err != nil:
	case x.CanUint():
		x.SetUint(uint64(n))
	default:
		x.SetInt(n)
	}
	return err
}

func (f *field) number(text string, least int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > f.max {
		return 0, fmt.Errorf("%s=%q must be a number in %d…%d", f.key, text, least, f.max)
	}
	return n, nil
}

func (f *field) setList(x reflect.Value, text string) error {
	var list []int
	last := int64(0)
	for part := range strings.SplitSeq(text, ",") {
		n, err := f.number(part, last+1)
		if err != nil {
			return err
		}
		list, last = append(list, int(n)), n
	}
	x.Set(reflect.ValueOf(list).Convert(x.Type()))
	return nil
}
