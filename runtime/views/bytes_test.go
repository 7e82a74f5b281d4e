package views

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/runtime"
)

var limits = Limits{Width: 3, Vocab: 100, Tokens: 12, Together: 4, Grids: true}

// sample is a view of two segments with text before, between and behind them.
func sample() *runtime.View {
	v := &runtime.View{Tokens: []runtime.Token{5}}
	for i, n := range []int{2, 3} {
		s := runtime.ViewSegment{At: len(v.Tokens), N: n, Together: i == 1, Width: 3 * i}
		for k := range n {
			v.Tokens = append(v.Tokens, runtime.ImageToken(uint32(1000*i+k), k == 0))
			for w := range limits.Width {
				s.Rows = append(s.Rows, float32(100*i+10*k+w)-0.5)
			}
		}
		v.Tokens = append(v.Tokens, runtime.Token(6+i))
		v.Segments = append(v.Segments, s)
	}
	return v
}

func bytesOf(t testing.TB, v *runtime.View) (b []byte) {
	t.Helper()
	if err := Bytes(v, func(n int) ([]byte, error) { b = make([]byte, n); return b, nil }); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBytes: a view comes back as it was, field for field.
func TestBytes(t *testing.T) {
	want := sample()
	b := bytesOf(t, want)
	if int64(len(b)) > limits.Most() {
		t.Errorf("%d bytes, at most %d", len(b), limits.Most())
	}
	got, err := Parse(b, &limits)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	clear(b)
	if !reflect.DeepEqual(got, want) {
		t.Error("the view has the bytes' memory")
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
		v := sample()
		v.Segments[1].Rows[2] = bad
		if err := Bytes(v, func(n int) ([]byte, error) { return make([]byte, n), nil }); err == nil {
			t.Errorf("%v was written", bad)
		}
	}
	full := errors.New("full")
	if err := Bytes(sample(), func(int) ([]byte, error) { return nil, full }); err != full {
		t.Error(err)
	}
}

// TestFieldsAreChecked: a field that a view or a segment gets is in the bytes by itself; what it may be, check says.
// This test is changed with it.
func TestFieldsAreChecked(t *testing.T) {
	for _, c := range []struct {
		of   reflect.Type
		want string
	}{{reflect.TypeFor[runtime.View](), "Tokens Segments"},
		{reflect.TypeFor[runtime.ViewSegment](), "At N Rows Together Width"}} {
		var names []string
		for i := range c.of.NumField() {
			names = append(names, c.of.Field(i).Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%v has %s, and %s are checked", c.of, got, c.want)
		}
	}
}

// TestBadBytes: whatever is wrong is refused, and the error says whether it is the bytes or the engine.
func TestBadBytes(t *testing.T) {
	edited := func(edit func(v *runtime.View)) []byte {
		v := sample()
		edit(v)
		return bytesOf(t, v)
	}
	headed := func(head string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(head)))
		return append(b, head...)
	}
	row := runtime.ImageToken(7, false)
	for _, c := range []struct {
		what string
		b    []byte
		want string
		kind error
	}{
		{"nothing", nil, "0 bytes", ErrBytes},
		{"a long head", []byte{255, 255, 255, 255, '{', '}'}, "a head of 4294967295 bytes", ErrBytes},
		{"no JSON", headed("x"), "the head", ErrBytes},
		{"another field", headed(`{"Tokens":[1],"Rows":[]}`), "unknown field", ErrBytes},
		{"two heads", headed(`{}{}`), "more than a view", ErrBytes},
		{"a huge token", headed(`{"Tokens":[99999999999]}`), "the head", ErrBytes},
		{"null", headed(`null`), "0 segments", ErrBytes},
		{"no segment", edited(func(v *runtime.View) { v.Segments = nil }), "0 segments", ErrBytes},
		{"many segments", edited(func(v *runtime.View) { v.Segments = make([]runtime.ViewSegment, 1025) }),
			"1025 segments", ErrBytes},
		{"no rows", edited(func(v *runtime.View) { v.Segments[0].N = 0 }), "segment 0", ErrBytes},
		{"negative", edited(func(v *runtime.View) { v.Segments[0].At = -1 }), "segment 0", ErrBytes},
		{"half a line", edited(func(v *runtime.View) { v.Segments[1].Width = 2 }), "3 rows in lines of 2", ErrBytes},
		{"a long line", edited(func(v *runtime.View) { v.Segments[0].Width = 4 }), "2 rows in lines of 4", ErrBytes},
		{"a negative line", edited(func(v *runtime.View) { v.Segments[0].Width = -1 }), "in lines of -1", ErrBytes},
		{"beyond the end", edited(func(v *runtime.View) { v.Segments[1].At = 6 }), "segment 1", ErrBytes},
		{"far beyond", edited(func(v *runtime.View) { v.Segments[1].At = math.MaxInt }), "segment 1", ErrBytes},
		{"huge", edited(func(v *runtime.View) { v.Segments[1].N = math.MaxInt }), "segment 1", ErrBytes},
		{"overlap", edited(func(v *runtime.View) { v.Segments[1].At, v.Segments[1].N = 2, 5 }), "segment 1", ErrBytes},
		{"order", edited(func(v *runtime.View) {
			v.Segments[0], v.Segments[1] = v.Segments[1], v.Segments[0]
		}), "token 1 is", ErrBytes},
		{"a word in a row", edited(func(v *runtime.View) { v.Tokens[2] = 5 }), "row 1 of segment 0", ErrBytes},
		{"a beginning in the middle", edited(func(v *runtime.View) { v.Tokens[2] = v.Tokens[1] }), "row 1 of segment 0",
			ErrBytes},
		{"no beginning", edited(func(v *runtime.View) { v.Tokens[1] = row }), "row 0 of segment 0", ErrBytes},
		{"a row in the text", edited(func(v *runtime.View) { v.Tokens[0] = row }), "token 0 is", ErrBytes},
		{"a row between", edited(func(v *runtime.View) { v.Tokens[3] = row }), "token 3 is", ErrBytes},
		{"a row behind", edited(func(v *runtime.View) { v.Tokens[7] = row }), "token 7 is", ErrBytes},
		{"no token", edited(func(v *runtime.View) { v.Tokens[0] = runtime.NoToken }), "token 0 is", ErrBytes},
		{"beyond the vocabulary", edited(func(v *runtime.View) { v.Tokens[7] = 100 }), "of a vocabulary of 100",
			ErrBytes},
		{"a value more", append(bytesOf(t, sample()), 0, 0, 0, 0), "64 bytes of rows, want 60", ErrBytes},
		{"cut", bytesOf(t, sample())[:len(bytesOf(t, sample()))-4], "56 bytes of rows", ErrBytes},
		{"a wider row", edited(func(v *runtime.View) { v.Segments[0].Rows = make([]float32, 8) }), "want 60", ErrBytes},
		{"no number", append(bytesOf(t, sample())[:len(bytesOf(t, sample()))-4], 0, 0, 0xc0, 0x7f), "not finite",
			ErrBytes},
		{"a long view", edited(func(v *runtime.View) { v.Tokens = make([]runtime.Token, 13) }), "13 tokens", ErrLimits},
		{"many at once", edited(func(v *runtime.View) {
			*v = runtime.View{Segments: []runtime.ViewSegment{{N: 5, Rows: make([]float32, 15), Together: true}}}
			for i := range 5 {
				v.Tokens = append(v.Tokens, runtime.ImageToken(1, i == 0))
			}
		}), "5 rows at once", ErrLimits},
	} {
		v, err := Parse(c.b, &limits)
		if v != nil || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v, want %q", c.what, v, err, c.want)
		}
	}
}

// TestViewsWithoutGrids: an engine whose positions have one dimension takes no view of another one.
func TestViewsWithoutGrids(t *testing.T) {
	l := limits
	l.Grids = false
	if v, err := Parse(bytesOf(t, sample()), &l); v != nil || !errors.Is(err, ErrLimits) {
		t.Errorf("%+v, %v", v, err)
	}
}

// FuzzParse: nothing panics, and what is read obeys the limits and is written again as it was.
func FuzzParse(f *testing.F) {
	b := bytesOf(f, sample())
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(b[4:])
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := Parse(b, &limits)
		if err != nil {
			if v != nil || errors.Is(err, ErrBytes) == errors.Is(err, ErrLimits) {
				t.Fatalf("%+v, %v", v, err)
			}
			return
		}
		if len(v.Tokens) > limits.Tokens {
			t.Fatalf("%d tokens", len(v.Tokens))
		}
		rows := 0
		for i := range v.Segments {
			s := &v.Segments[i]
			if rows += s.N; s.Together && s.N > limits.Together || len(s.Row(s.N-1)) != limits.Width {
				t.Fatalf("segment %d: %+v", i, s)
			}
			if at := runtime.WholeImages(v.Tokens, s.At+s.N-1); at != s.At {
				t.Fatalf("segment %d can be cut at %d", i, at)
			}
		}
		for i, tok := range v.Tokens {
			if runtime.IsImage(tok) {
				rows--
			} else if tok < 0 || int(tok) >= limits.Vocab {
				t.Fatalf("token %d is %d", i, tok)
			}
		}
		if rows != 0 {
			t.Fatalf("%d rows without a token", rows)
		}
		again := bytesOf(t, v)
		if got, err := Parse(again, &limits); err != nil || !reflect.DeepEqual(got, v) ||
			!bytes.HasSuffix(again, b[len(b)-4*limits.Width:]) {
			t.Fatalf("written again it is %+v, %v", got, err)
		}
	})
}
