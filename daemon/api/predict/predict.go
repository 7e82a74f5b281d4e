// Package predict is POST /predict, the prediction protocol of Google's Vertex AI as in llama-server: a body holds
// several requests to other endpoints, which are answered side by side.
package predict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
)

// Path is the endpoint's.
const Path = "/predict"

const (
	maxInstances = 128
	maxAnswer    = 16 << 20 // bytes of the answer to one instance
	formatField  = "@requestFormat"
)

// Route returns the endpoint over the POST endpoints of routes.
func Route(s *api.Server, routes []api.Route) api.Route {
	formats := map[string]api.Route{}
	for _, r := range routes {
		if r.Method == http.MethodPost && !strings.Contains(r.Path, "{") {
			formats[r.Path] = r
		}
	}
	for _, r := range routes { // those below /v1 come first, as in llama-server
		if name := Format(r.Path); r.Method == http.MethodPost && !strings.Contains(r.Path, "{") {
			if _, taken := formats[name]; !taken || strings.HasPrefix(r.Path, "/v1/") {
				formats[name] = r
			}
		}
	}
	return api.Route{Method: http.MethodPost, Path: Path, Handle: func(w http.ResponseWriter, r *http.Request) {
		serve(s, formats, w, r)
	}}
}

// Format returns the name that a path has in the field @requestFormat: chatCompletions for /v1/chat/completions.
func Format(path string) string {
	var b strings.Builder
	upper := false
	for _, c := range strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/") {
		switch {
		case c == '/' || c == '-' || c == '_':
			upper = true
			continue
		case upper:
			b.WriteString(strings.ToUpper(string(c)))
		default:
			b.WriteRune(c)
		}
		upper = false
	}
	return b.String()
}

// instances reads the body.
func instances(body []byte) ([]map[string]json.RawMessage, error) {
	var in struct {
		Instances []map[string]json.RawMessage `json:"instances"`
	}
	if err := json.Unmarshal(body, &in); err != nil || len(in.Instances) == 0 {
		return nil, api.Refuse(`field "instances" must be a list of objects, each the body of a request with ` +
			`"@requestFormat"`)
	}
	if n := len(in.Instances); n > maxInstances {
		return nil, api.Refusef(`field "instances" has %d elements; the maximum is %d`, n, maxInstances)
	}
	return in.Instances, nil
}

func serve(s *api.Server, formats map[string]api.Route, w http.ResponseWriter, r *http.Request) {
	out := s.NewWriter(w)
	body, err := api.ReadBody(r)
	if err != nil {
		openai.Fail(out, api.AsError(err))
		return
	}
	list, err := instances(body)
	if err != nil {
		openai.Fail(out, api.AsError(err))
		return
	}
	answers := make([]json.RawMessage, len(list))
	var wg sync.WaitGroup
	for i, in := range list {
		wg.Go(func() { answers[i] = answer(s, formats, r, in) })
	}
	wg.Wait()
	out.JSON(http.StatusOK, struct {
		Predictions []json.RawMessage `json:"predictions"`
	}{answers})
}

// answer returns the body with which the endpoint of an instance answers it, or an error's.
func answer(s *api.Server, formats map[string]api.Route, of *http.Request, in map[string]json.RawMessage) (
	body json.RawMessage) {
	refused := func(message string) json.RawMessage {
		rec := &api.Kept{}
		openai.Fail(s.NewWriter(rec), api.Refuse(message))
		return rec.Body
	}
	var format string
	if json.Unmarshal(in[formatField], &format) != nil || format == "" {
		return refused(`field "@requestFormat" must name an endpoint, such as "chatCompletions"`)
	}
	route, ok := formats[format]
	if !ok {
		return refused(fmt.Sprintf(`field "@requestFormat" is %.60q; it must be the name of an endpoint, such as `+
			`"chatCompletions"`, format))
	}
	rest := map[string]json.RawMessage{}
	for name, v := range in {
		if name != formatField && name != "stream" { // a prediction is one object
			rest[name] = v
		}
	}
	text, err := json.Marshal(rest)
	if err != nil {
		return refused(err.Error())
	}
	r := of.Clone(of.Context())
	r.URL = &url.URL{Path: route.Path}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	rec := &api.Kept{Max: maxAnswer}
	route.Handle(rec, r)
	if !json.Valid(rec.Body) {
		return refused("the answer is longer than this endpoint takes, or no JSON")
	}
	return rec.Body
}
