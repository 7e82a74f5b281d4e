package jsontext

import (
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
