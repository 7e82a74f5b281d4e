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

func TestWatchersAreBounded(t *testing.T) {
	var c Watchers
	for range UserWatchers {
		if !c.Enter(1) {
			t.Fatal("a client has no place")
		}
	}
	if c.Enter(1) {
		t.Error("a user has more than the limit")
	}
	for user := uint32(2); c.all < MaxWatchers; user++ {
		for c.all < MaxWatchers && c.Enter(user) {
		}
	}
	if c.Enter(1000) {
		t.Error("all users have more than the limit")
	}
	c.Leave(1)
	if !c.Enter(1000) {
		t.Error("a place that is free again is not given")
	}
}
