package reports

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// jsonPaths lists the paths of a struct's JSON fields: a.b for structs, a[].b for slices of structs.
func jsonPaths(prefix string, t reflect.Type, out map[string]bool) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		path, ft := prefix+name, t.Field(i).Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case ft == reflect.TypeFor[CostModel]():
			out[path] = true // documented with info
		case ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct:
			out[path] = true
			jsonPaths(path+"[].", ft.Elem(), out)
		case ft.Kind() == reflect.Struct:
			if path == "state" {
				out[path] = true
			}
			jsonPaths(path+".", ft, out)
		default:
			out[path] = true
		}
	}
}

// TestDocumentedLive: docs/protocol.md has every field of the live view's events, and no other.
func TestDocumentedLive(t *testing.T) {
	real := map[string]bool{}
	jsonPaths("", reflect.TypeFor[LiveHello](), real)
	jsonPaths("", reflect.TypeFor[Live](), real)
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## The live view\n")
	text, _, _ = strings.Cut(text, "\n## ")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(text, -1) {
		documented[row[1]] = true
	}
	if !maps.Equal(documented, real) {
		t.Errorf("docs/protocol.md has %v,\nthe code %v", slices.Sorted(maps.Keys(documented)),
			slices.Sorted(maps.Keys(real)))
	}
	for _, what := range []string{"take 8 ms together", "oldest first, 64 at most"} {
		if !strings.Contains(text, what) || LiveMergeMs != 8 || MaxLiveStreams != 64 {
			t.Errorf("the section does not say %q, or the code another number", what)
		}
	}
}
