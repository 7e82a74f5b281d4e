package reports

import (
	"bytes"
	"encoding/json"
	"flag"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the messages of ipc/wire/testdata again; understand the diff before "+
	"committing it")

// sampleReports have every field.
func sampleReports() (WhyReport, KVReport, KVDone) {
	return WhyReport{Requests: []WhyRequest{{Request: "r-1", Number: 17, UID: 2883061449, Owner: "alice",
			Class: "interactive", State: "done", Ended: "stop",
			AgeMs: 2400.5, TookMs: 812.25, TTFTMs: 104, Dropped: 2,
			Usage: WhyUsage{PromptTokens: 900, CachedTokens: 812, CacheTier: "host",
				CacheMiss: "diverged at token 812: another message", CompletionTokens: 40, ThinkTokens: 15},
			Form: &WhyConstraint{Form: "json", CompileMs: 1.5, Masks: 12, MaskMs: 0.48, ForcedTokens: 21},
			Signals: &WhySignals{Probes: 9, Entropy: 0.31, Mean: 0.28, Variance: 0.0004, Index: 1.2, Converged: 96,
				Overthinking: 120},
			Drafts: &WhyDrafts{Most: 16, Reason: "draft_unlikely",
				Text: "They are accepted too rarely.", SinceMs: 210.5,
				Chance: 0.125, Counts: []WhyDraftCount{{Phase: "think", Source: "own", Drafted: 90, Accepted: 71}}},
			Decisions: []Decision{{AtMs: 0.25, LastMs: 30, Times: 4, Reason: "target",
				Text: "More would not have fitted.", Tokens: 68, Latest: 17}}}}},
		KVReport{Cells: KVCells{4096, 300, 100, 696, 200, 2800}, BytesPerToken: 12288, BlockTokens: 16, SeqsUsed: 5,
			SeqsMax: 64,
			Lookups: 10, Hits: 8, HitRatio: 0.8, CachedTokens: 6400, Snapshots: 3,
			Tiers: []KVTier{{Tier: wire.TierHost, Off: "x", Entries: 2, Tokens: 1024, Bytes: 12582912,
				CapBytes: 1 << 30,
				Hits:     3, HitTokens: 900, Evictions: 1, PagesIn: 900, PagesOut: 1924, RestoreMs: 3.5, Errors: 1,
				Damaged: 2, LastError: "e", Paused: true}},
			Entries: []KVEntry{{Name: "12", Kind: "prefix", Tier: wire.TierDevice, Class: "prefix", Request: "r-1",
				Number: 17, UID: 2883061449, Owner: "alice", Seq: 3, From: 16, Tokens: 640, OwnTok: 128,
				Bytes: 7864320, OwnBytes: 1572864, AgeMs: 61000, IdleMs: 1200, Hits: 4, Turns: 2, Pinned: true,
				Worth: 0.5, Hash: "0123456789abcdef", Why: "conversation of 2 turns"}},
			Tree: "4096 cells\n"},
		KVDone{Op: "drop", Target: "12", Done: 1, Tokens: 640, Bytes: 7864320, Text: "Dropped prefix 12."}
}

// TestReportsRoundTrip: a client reads the values that the server has written.
func TestReportsRoundTrip(t *testing.T) {
	why, kv, done := sampleReports()
	kv.Tiers = append(kv.Tiers, KVTier{Tier: wire.TierNone})
	for _, want := range []any{&why, &kv, &done} {
		raw, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := json.Unmarshal(raw, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	}
}

// TestGoldenReports: the messages of ipc/wire/testdata have these reports.
func TestGoldenReports(t *testing.T) {
	why, kv, done := sampleReports()
	for name, of := range map[string]struct {
		kind   wire.Kind
		report any
	}{"report_why": {wire.KindWhy, &why}, "report_kv": {wire.KindKV, &kv}, "report_kv_done": {wire.KindKV, &done}} {
		path := filepath.Join("..", "testdata", name+".json")
		got, err := json.MarshalIndent(map[string]any{"event": of.kind.String(), "id": "q",
			of.kind.String(): of.report}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var a, b bytes.Buffer
		want, err := os.ReadFile(path)
		if err != nil || json.Compact(&a, got) != nil || json.Compact(&b, want) != nil || a.String() != b.String() {
			t.Errorf("%s: %v\n got %s\nwant %s\n(go test ./ipc/wire/... -rewrite writes it again)", name, err, got,
				want)
		}
	}
}
