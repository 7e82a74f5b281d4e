package jsontext

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// TestParserGivesLargeMemoryBack: one large message must not stay resident for good.
func TestParserGivesLargeMemoryBack(t *testing.T) {
	p := new(Parser)
	if _, bad := p.Parse([]byte(`{"id":"a","prompt":"` + strings.Repeat("x", keepText) + `"}`)); bad != "" {
		t.Fatal(bad)
	}
	if p.Release(); !reflect.ValueOf(&p.tree).Elem().IsZero() || p.Scan.Bytes != nil {
		t.Error("the parser kept the tree of a large message")
	}
}

// TestPlain: the first byte that does not stand for itself is found wherever it is, also behind bytes of any value.
func TestPlain(t *testing.T) {
	for special := range 256 {
		for at := range 20 {
			for _, before := range []byte{' ', '!', '#', '[', ']', 0x7f, 0x80, 0xa2, 0xdc, 0xff} {
				b := bytes.Repeat([]byte{before}, 24)
				b[at] = byte(special)
				want := len(b)
				if special < 0x20 || special == '"' || special == '\\' {
					want = at
				}
				if got := plain(b); got != want {
					t.Fatalf("%q: %d, want %d", b, got, want)
				}
			}
		}
	}
}
