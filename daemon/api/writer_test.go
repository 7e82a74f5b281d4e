package api_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// TestWriter: one value, events, lines, and the headers of each.
func TestWriter(t *testing.T) {
	s := &api.Server{}
	for _, c := range []struct {
		write             func(*api.Writer)
		kind, body, nginx string
		status            int
	}{
		{func(w *api.Writer) { w.JSON(http.StatusTeapot, map[string]string{"a": "<&>"}) }, "application/json",
			`{"a":"<&>"}` + "\n", "", http.StatusTeapot},
		{func(w *api.Writer) { w.Event("x", 1); w.Event("", "a\nb"); w.Comment(); w.Text("[DONE]") },
			"text/event-stream",
			"event: x\ndata: 1\n\ndata: \"a\\nb\"\n\n:\n\ndata: [DONE]\n\n", "no", http.StatusOK},
		{func(w *api.Writer) { w.Line(1); w.Line("b") }, "application/x-ndjson", "1\n\"b\"\n", "no", http.StatusOK},
	} {
		rec := httptest.NewRecorder()
		w := s.NewWriter(rec)
		if w.Begun() {
			t.Error("it has begun before anything is written")
		}
		c.write(w)
		if err := w.Flush(); err != nil || !w.Begun() {
			t.Errorf("%v, begun %v", err, w.Begun())
		}
		if h := rec.Header(); rec.Code != c.status || rec.Body.String() != c.body || h.Get("Content-Type") != c.kind ||
			h.Get("X-Accel-Buffering") != c.nginx || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%d %v %q", rec.Code, h, rec.Body)
		}
	}
}

// TestBody: how fields are sorted, and what is refused by which name.
func TestBody(t *testing.T) {
	table := append(api.Of(api.Taken, "input", "n"), append(api.Of(api.Ignored, "metadata"),
		api.Field{Name: "best_of", Use: api.Refused, But: []string{"1", `["a"]`}, Why: "why not"})...)
	b, err := table.Read([]byte(` {"input":"x","metadata":1,"metadata":2,"temperature":0.5,"n":null,"best_of":[ "a" ` +
		`],"\u0073eed":7}`))
	if err != nil {
		t.Fatal(err)
	}
	if !b.Has("input") || !b.Has("temperature") || b.Has("n") || b.Has("metadata") ||
		strings.Join(b.Passed(), " ") != "temperature seed" {
		t.Errorf("%+v", b)
	}
	r, err := b.Request("id-1", struct {
		Prompt string `json:"prompt"`
	}{"y"})
	if err != nil || r.ID != "id-1" || r.Prompt != "y" || r.Sampling.Temperature != 0.5 || r.Sampling.Seed != 7 ||
		!r.Stream || !r.NoProgress {
		t.Errorf("%+v, %v", r, err)
	}
	for body, want := range map[string]string{
		`[1]`: "the body is an array", ``: "JSON", `{"a":1`: "JSON", "{\"a\":\"\x01\"}": "control character",
		`{"input":1,"input":1}`: `"input" is given twice`,
		`{"event":"cancel"}`:    `"event" belongs to the framed protocol`,
		`{"best_of":2}`:         `"best_of" is not supported by this server (why not)`,
		`{"temprature":1}`:      `did you mean "temperature"`, `{"unheard_of":1}`: `"unheard_of" is not known`,
	} {
		_, err := table.Read([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
		if e := api.AsError(err); e.Code != wire.BadRequest && e.Code != wire.InvalidJSON {
			t.Errorf("%s: %+v", body, e)
		}
	}
	b, err = table.Read([]byte(`{"input":{"a":["x"]},"temperature":"hot"}`))
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Input struct {
			A []int `json:"a"`
		} `json:"input"`
	}
	if err := b.Into(&in); err == nil ||
		!strings.Contains(err.Error(), `"input.a" is a string; it must be an integer`) {
		t.Errorf("%v", err)
	}
	var bad *api.Error
	if _, err := b.Request("id-2", nil); !errors.As(err, &bad) || bad.ID != "" ||
		!strings.Contains(bad.Message, `"temperature"`) {
		t.Errorf("%v", err)
	}
}
