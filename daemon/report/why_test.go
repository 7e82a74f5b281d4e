package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/model/toolcall"
	"github.com/uma-serve/uma-serve/sched"
	"github.com/uma-serve/uma-serve/sched/price"
	"github.com/uma-serve/uma-serve/sched/reason"
)

// TestWhyChoosesRequests: the newest come first, a user sees its own, an operator all, and a number, an id and a count
// select among them.
func TestWhyChoosesRequests(t *testing.T) {
	epoch := time.Unix(100, 0)
	now := epoch.Add(time.Minute)
	for _, c := range []struct {
		q        wire.WhyQuestion
		operator bool
		want     string
	}{
		{wire.WhyQuestion{}, false, "new b a"},
		{wire.WhyQuestion{}, true, "other new c b a"},
		{wire.WhyQuestion{Last: 2}, false, "new b"},
		{wire.WhyQuestion{Request: "a"}, false, "a"},
		{wire.WhyQuestion{Request: "#2"}, false, "b"},
		{wire.WhyQuestion{Request: "#3"}, false, ""},
		{wire.WhyQuestion{Request: "#3"}, true, "c"},
		{wire.WhyQuestion{Request: "#0"}, true, ""},
	} {
		w := NewWhy(c.q, 1, c.operator, now, epoch)
		for _, r := range []Request{{ID: 2, WireID: "b", Owner: 1}, {ID: 1, WireID: "a", Owner: 1},
			{ID: 3, WireID: "c", Owner: 2}} {
			if w.Wants(r.ID, r.WireID, r.Owner) {
				w.Add(&r, nil)
			}
		}
		for _, r := range []Request{{WireID: "new", Owner: 1}, {WireID: "other", Owner: 2}} {
			if w.Wants(0, r.WireID, r.Owner) {
				w.AddArriving(r.WireID, r.Owner, sched.Interactive, now)
			}
		}
		rep := w.Report()
		var ids []string
		for _, r := range rep.Requests {
			ids = append(ids, r.Request)
		}
		if got := strings.Join(ids, " "); got != c.want || rep.Requests == nil {
			t.Errorf("%+v, operator %v: %q, want %q", c.q, c.operator, got, c.want)
		}
	}
}

// TestDecisionsInOrder: what concerns the whole request comes first, all else by its time since the arrival.
func TestDecisionsInOrder(t *testing.T) {
	epoch := time.Unix(100, 0)
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	r := Request{ID: 7, Arrived: at(1000),
		Compiled: Compiled{At: at(1001), Took: 4 * time.Millisecond},
		Device:   DeviceWait{First: at(1020), Last: at(1030), Took: time.Second, Times: 2, Without: 1, Holder: "m"},
		Price: Price{At: at(1010), Tokens: 64,
			Price: price.Price{Way: price.WayRestore, Restore: time.Millisecond, Compute: time.Second}},
		Force:     meridian.Force{Reason: meridian.HardCap, DecidedAt: int64(1050 * time.Millisecond), Tokens: 9},
		Malformed: []MalformedCall{{At: at(1060), Reason: toolcall.Unfinished}},
		Changes:   []wire.Note{{Reason: "change", Text: "of a message", Times: 3}},
		Note:      "a text of many",
	}
	w := NewWhy(wire.WhyQuestion{}, 0, true, at(2000), epoch)
	w.Add(&r, []sched.Decision{{First: sched.Instant(1005 * time.Millisecond), Last: sched.Instant(1040 *
		time.Millisecond), Times: 8, Reason: reason.Decode}})
	var got []string
	for _, d := range w.Report().Requests[0].Decisions {
		got = append(got, fmt.Sprintf("%s@%v–%v×%d", d.Reason, d.AtMs, d.LastMs, d.Times))
	}
	want := "embeddings@0–0×1 change@0–0×3 compiled@1–1×1 " + reason.Decode.String() + "@5–40×8 " +
		"cells_restore@10–10×1 device_wait@20–30×2 " +
		"forced_" + meridian.HardCap.String() + "@50–50×1 call_unfinished@60–60×1"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
}
