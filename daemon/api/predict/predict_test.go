package predict

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
)

func TestFormat(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/chat/completions": "chatCompletions", "/apply-template": "applyTemplate", "/completion": "completion",
		"/v1/messages/count_tokens": "messagesCountTokens", "/": "", "": "",
	} {
		if got := Format(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// server answers /predict over endpoints that echo their path and body.
func server() http.HandlerFunc {
	echo := func(path string) api.Route {
		return api.Route{Method: http.MethodPost, Path: path, Handle: func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, `{"path":%q,"body":%s}`, r.URL.Path, body)
		}}
	}
	long := api.Route{Method: http.MethodPost, Path: "/long", Handle: func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, maxAnswer+1))
	}}
	return Route(&api.Server{}, []api.Route{echo("/completions"), echo("/v1/completions"), echo("/v1/chat/completions"),
		long, {Method: http.MethodGet, Path: "/props"}}).Handle
}

func post(h http.HandlerFunc, body string) (int, string) {
	w := httptest.NewRecorder()
	h(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func TestPredict(t *testing.T) {
	for body, want := range map[string][]string{
		`{"instances":[{"@requestFormat":"chatCompletions","stream":true,"n":1},{"@requestFormat":"completions"}]}`: {
			`{"predictions":[{"path":"/v1/chat/completions","body":{"n":1}},{"path":"/v1/completions","body":{}}]}`},
		`{"instances":[{"@requestFormat":"/completions"}]}`: {`[{"path":"/completions","body":{}}]`},
		`{"instances":[{"@requestFormat":"props"},{}]}`:     {`is \"props\"`, "must name an endpoint"},
		`{"instances":[{"@requestFormat":"long"}]}`:         {"longer than this endpoint takes"},
	} {
		status, got := post(server(), body)
		for _, w := range want {
			if status != http.StatusOK || !strings.Contains(got, w) {
				t.Errorf("%s: %d %s, want %s", body, status, got, w)
			}
		}
	}
	many := `{"instances":[` + strings.Repeat("{},", maxInstances) + `{}]}`
	for _, body := range []string{"", "[]", "{}", `{"instances":{}}`, `{"instances":[1]}`, `{"instances":[]}`, many} {
		if status, got := post(server(), body); status != http.StatusBadRequest || !strings.Contains(got, "instances") {
			t.Errorf("%.40s: %d %s", body, status, got)
		}
	}
}

func FuzzPredict(f *testing.F) {
	f.Add(`{"instances":[{"@requestFormat":"chatCompletions"}]}`)
	f.Add(`{"instances":[{"@requestFormat":1},null]}`)
	h := server()
	f.Fuzz(func(t *testing.T, body string) {
		if status, got := post(h, body); status != http.StatusOK && status != http.StatusBadRequest {
			t.Errorf("%d %s", status, got)
		}
	})
}
