package report

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

func TestMergedKV(t *testing.T) {
	busy := &wire.Error{Code: wire.ModelUnready, Message: "busy"}
	pin := &wire.KVQuestion{Op: wire.KVPin, Target: "all"}
	parts := []Reply{{Model: "a", Err: busy}, {Model: "b", Body: []byte(`{"done":2,"tokens":5,"text":"two."}`)},
		{Model: "c", Body: []byte(`{"done":1,"tokens":3,"text":"one."}`)}}
	sum, e := MergeKVDone(pin, parts)
	if want := (reports.KVDone{Op: "pin", Target: "all", Done: 3, Tokens: 8, Text: "b: two. c: one."}); e != nil ||
		sum != want {
		t.Errorf("%+v, %v, want %+v", sum, e, want)
	}
	if _, e := MergeKVDone(pin, parts[:1]); e != busy {
		t.Errorf("the error of the only process: %+v", e)
	}
	if _, e := MergeKV(nil); e == nil || e.Code != wire.ModelUnready {
		t.Errorf("without a process: %+v", e)
	}
	top, e := MergeKV([]Reply{{Model: "a", Err: busy}, {Model: "b", Body: []byte(`{}`)}})
	if e != nil || len(top.Models) != 1 || top.Models["b"] == nil {
		t.Errorf("%+v, %v", top, e)
	}
}

func TestMergedMetrics(t *testing.T) {
	read := func(text string) (d MetricsDocument) {
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	var unread []string
	got := MergeMetrics(read(`{"sessions":9,"tokens":0,"uptime":1}`), []Reply{{Model: "a",
		Body: []byte(`{"sessions":1,"tokens":7}`)}, {Model: "b", Body: []byte(`[]`)}, {Model: "c", Err: &wire.Error{}}},
		[]string{"sessions"}, []string{"uptime"}, func(model string) { unread = append(unread, model) })
	want := read(`{"sessions":9,"tokens":7,"front":{"uptime":1},"models":{"a":{"sessions":1,"tokens":7},"b":[]}}`)
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(unread, []string{"b"}) {
		t.Errorf("%s, want %s; unread %q", got, want, unread)
	}
}

func TestMergedWhy(t *testing.T) {
	parts := []Reply{{Model: "a", Body: []byte(`{"requests":[{"request":"1","age_ms":5},{"request":"2","age_ms":9}]}`)},
		{Model: "b", Body: []byte(`{"requests":[{"request":"3","age_ms":7}]}`)}}
	rep := MergeWhy(parts, []reports.WhyRequest{{Request: "4", AgeMs: 6}}, 3)
	if r := rep.Requests; len(r) != 3 || r[0].Request != "1" || r[0].Model != "a" || r[1].Request != "4" ||
		r[2].Model != "b" {
		t.Errorf("%+v", r)
	}
}

// TestMergedInfo: the first process's report with what the front knows better, and each model's own.
func TestMergedInfo(t *testing.T) {
	own := reports.Info{PID: 1, Status: "ok", Models: []reports.InfoServed{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	in := MergeInfo(own, []Reply{{Model: "a", Body: []byte(`{"pid":2,"status":"loading","version":"v"}`)},
		{Model: "b", Body: []byte(`{"pid":3}`)}})
	if in.PID != 1 || in.Status != "ok" || in.Version != "v" || in.Models[0].Info.PID != 2 ||
		in.Models[1].Info.PID != 3 || in.Models[2].Info != nil {
		t.Errorf("%+v", in)
	}
}
