package modelnews

import (
	"testing"
)

func TestModelChanges(t *testing.T) {
	was := map[string]Seen{"a": {Status: "unloaded"}, "b": {Status: "loaded"}, "c": {Status: "loading", Progress: 0.2}}
	is := map[string]Seen{"a": {Status: "unloaded"}, "b": {Status: "loaded"}, "c": {Status: "loading", Progress: 0.5},
		"d": {Status: "unloaded"}}
	const want = `data: {"model":"c","event":"model_status","data":{"status":"loading","progress":` +
		`{"stages":["text_model"],"current":"text_model","value":0.5}}}` + "\n\n"
	if got := string(States(nil, was, is)); got != want {
		t.Errorf("%s", got)
	}
}
