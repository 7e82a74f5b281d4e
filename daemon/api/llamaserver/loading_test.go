package llamaserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/llamaserver"
)

// TestLoading: what needs the model says that it is loading.
func TestLoading(t *testing.T) {
	url := apitest.Serve(t, &apitest.Backend{Loading: true}, llamaserver.Routes)
	for _, c := range [][3]string{
		{"POST", "/tokenize", `{"content":"x"}`}, {"POST", "/infill", `{}`}, {"GET", "/props", ""},
		{"GET", "/slots", ""}, {"GET", "/v1/health", ""},
	} {
		status, _, body := apitest.Do(t, c[0], url+c[1], c[2], 0)
		if status != http.StatusServiceUnavailable || !strings.Contains(body, `"message":"Loading model"`) ||
			!strings.Contains(body, "unavailable_error") {
			t.Errorf("%v: %d %s", c, status, body)
		}
	}
}
