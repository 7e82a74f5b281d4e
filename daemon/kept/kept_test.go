package kept

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestTwoDaemons: of two daemons with the same folder one has it, and the other one may when the first has ended.
func TestTwoDaemons(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	daemon := func() (*Keeper, func() string) {
		k := New(Options{Dir: dir, Log: slog.New(slog.DiscardHandler), Owner: func(*http.Request) uint32 { return 1 },
			Ask: func(context.Context, uint32, string, http.Header, []byte) (*http.Response, error) {
				return nil, io.EOF
			},
			Fail: func(w http.ResponseWriter, _ *http.Request, e *wire.Error) { io.WriteString(w, e.Message) }})
		return k, func() string {
			w := httptest.NewRecorder()
			for _, r := range k.Routes() {
				if r.Method == http.MethodGet && r.Path == "/v1/files" {
					r.Handle(w, httptest.NewRequest(r.Method, r.Path, nil))
				}
			}
			return w.Body.String()
		}
	}
	a, listA := daemon()
	b, listB := daemon()
	defer b.Close()
	if got := listA(); !strings.Contains(got, `"object":"list"`) {
		t.Fatal(got)
	}
	if got := listB(); !strings.Contains(got, "another uma-serve") {
		t.Errorf("the second daemon has the folder too: %s", got)
	}
	a.Close()
	if got := listB(); !strings.Contains(got, `"object":"list"`) {
		t.Errorf("the first daemon has ended: %s", got)
	}
}

// TestResultsOnce: a process that ends after it has kept results, and before the batch knows, keeps them once.
func TestResultsOnce(t *testing.T) {
	k := New(Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	defer k.Close()
	s, err := k.open()
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.keep(1, "batch_1_output.jsonl", strings.NewReader("{}\n"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.keep(1, "batch_1_output.jsonl", strings.NewReader("{}\n"))
	if err != nil || again != first {
		t.Errorf("%q, then %q (%v)", first, again, err)
	}
	if other, err := s.keep(2, "batch_1_output.jsonl", strings.NewReader("")); err != nil || other == first {
		t.Errorf("another user's file is %q (%v)", other, err)
	}
}
