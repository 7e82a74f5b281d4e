package inspect

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.txt; read the diff before you keep it")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: the screen shows\n%s\nwant\n%s", name, got, want)
	}
}

func plain() *ui.Terminal { return ui.New(&bytes.Buffer{}, false, false, nil) }

func TestWhy(t *testing.T) {
	r := reports.WhyReport{Requests: []reports.WhyRequest{
		{Request: "chat-42", Number: 1807, UID: 1000, Class: "interactive", State: "done", Ended: "stop", AgeMs: 62_000,
			TookMs: 2412.5, TTFTMs: 104.25, Dropped: 2,
			Usage: reports.WhyUsage{PromptTokens: 1500, CachedTokens: 812, CacheTier: "host",
				CacheMiss: "diverged at token 812: another message", CompletionTokens: 340, ThinkTokens: 312},
			Decisions: []reports.Decision{
				{AtMs: 0.2, LastMs: 40.5, Times: 3, Reason: "wait_turn",
					Text: "It waits because others are before it."},
				{AtMs: 41, LastMs: 98, Times: 4, Reason: "target",
					Text: "More would not have fitted under the running answers' time between tokens " +
						"(--itl-target-ms).", Tokens: 688, Latest: 17},
				{AtMs: 104.25, LastMs: 104.25, Times: 1, Reason: "decode", Text: "It was its turn.", Tokens: 1},
				{AtMs: 2100, LastMs: 2100, Times: 1, Reason: "converged",
					Text: "Its thinking was ended: the answer had settled."},
			}},
		{Number: 1806, UID: 0, Class: "background", State: "queued", AgeMs: 3},
	}}
	golden(t, "why.txt", Why(plain(), &r))
	golden(t, "why_nothing.txt", Why(plain(), &reports.WhyReport{}))
}

func TestKV(t *testing.T) {
	r := reports.KVReport{Cells: reports.KVCells{Total: 4096, Own: 300, Shared: 100, Cached: 696, Pinned: 200,
		Free: 2800},
		BytesPerToken: 12288, BlockTokens: 16,
		SeqsUsed: 5, SeqsMax: 64, Lookups: 10, Hits: 8, HitRatio: 0.8, CachedTokens: 6400, Snapshots: 3,
		Tiers: []reports.KVTier{
			{Tier: wire.TierDevice, Entries: 3, Tokens: 1296, Bytes: 15925248, Hits: 5, HitTokens: 4000, Evictions: 2},
			{Tier: wire.TierHost, Entries: 2, Tokens: 1024, Bytes: 12582912, CapBytes: 1 << 30, Hits: 3, HitTokens: 900,
				Evictions: 1, PagesIn: 900, PagesOut: 1924, RestoreMs: 3.5, Errors: 1},
			{Tier: wire.TierDisk, Off: "no --cache-dir"},
			{Tier: wire.TierFabric, Errors: 5, Damaged: 2, LastError: "valkey: pull: connection refused", Paused: true},
		},
		Entries: []reports.KVEntry{
			{Name: "seq 1", Kind: "request", Request: "chat-42", Tier: wire.TierDevice, Class: "output_critical",
				UID: 1000, Seq: 1, Tokens: 400, OwnTok: 300, Bytes: 4915200, AgeMs: 1500, IdleMs: 12, Why: "runs"},
			{Name: "12", Kind: "prefix", Tier: wire.TierDevice, Class: "prefix", UID: 1000, Seq: 3, Tokens: 640,
				OwnTok: 128, Bytes: 7864320, AgeMs: 61000, IdleMs: 1200, Hits: 4, Turns: 2, Pinned: true,
				Why: "pinned by a user"},
			{Name: "3f2a90c1", Kind: "prefix", Tier: wire.TierHost, Class: "prefix", UID: 1001, Seq: -1, From: 512,
				Tokens: 512, OwnTok: 512, Bytes: 6291456, AgeMs: 3_600_000, IdleMs: 600_000,
				Why: "conversation of 2 turns"},
		},
		Tree: "4096 cells: …\n[0, 512) shared by 2\n  [512, 640) cached · prefix 12\n"}
	golden(t, "kv.txt", KV(plain(), &r, false))
	golden(t, "kv_nothing.txt", KV(plain(), &reports.KVReport{}, false))
}

// TestHostile: names come from clients; none of them reaches the terminal as a command.
func TestHostile(t *testing.T) {
	const bad = "\x1b]0;owned\x07\x1b[2J\u202e"
	why := reports.WhyReport{Requests: []reports.WhyRequest{{Request: bad, Class: bad, State: bad, Ended: bad,
		Usage:     reports.WhyUsage{CachedTokens: 1, CacheTier: bad, CacheMiss: bad},
		Decisions: []reports.Decision{{Text: bad, Reason: bad}}}}}
	kv := reports.KVReport{Tree: bad, Tiers: []reports.KVTier{{Tier: bad, LastError: bad}, {Off: bad}},
		Entries: []reports.KVEntry{{Name: bad, Kind: bad, Tier: bad, Class: bad, Request: bad, Why: bad, Bytes: -1}}}
	if screen := Why(plain(), &why) + KV(plain(), &kv, false); strings.ContainsAny(screen, "\x1b\x07\u202e") {
		t.Errorf("an escape in %q", screen)
	}
}

// TestKVFitsTheWindow: kv and kv --tree show a summary first, and no row or column that the window has not; a pipe and
// --all get everything.
func TestKVFitsTheWindow(t *testing.T) {
	r := reports.KVReport{Cells: reports.KVCells{Total: 1_048_576, Own: 300_123, Shared: 100_456, Cached: 600_789,
		Pinned: 20_000, Free: 47_208}, BytesPerToken: 131_072, BlockTokens: 16,
		SeqsUsed: 250, SeqsMax: 256, Lookups: 1_234_567, Hits: 1_000_000, HitRatio: 0.81, CachedTokens: 987_654_321,
		Snapshots: 12_345}
	for _, tier := range []wire.CacheTier{wire.TierDevice, wire.TierHost, wire.TierDisk, wire.TierFabric} {
		r.Tiers = append(r.Tiers, reports.KVTier{Tier: tier, Entries: 123_456, Tokens: 123_456_789, Bytes: 99 << 33,
			CapBytes: 99 << 34, Hits: 1_234_567, Evictions: 12_345, PagesIn: 1_234_567, PagesOut: 1_234_567,
			RestoreMs: 1234})
	}
	for i := range 300 {
		r.Entries = append(r.Entries, reports.KVEntry{Name: fmt.Sprintf("%016x", 0xfedcba9876543210-uint64(i)<<40),
			Kind: "request", Request: "a client's own name, 世界世界世界 " + strings.Repeat("long ", 20),
			Tier:  wire.TierDevice,
			Class: "output_critical", UID: uint64(1_000_000 + i), Tokens: 123_456, OwnTok: 123_456, Bytes: 16 << 30,
			AgeMs: 1e8, IdleMs: 1e7, Hits: 123_456, Why: "conversation of 1,234 turns"})
	}
	tree := "1048576 cells: …\n"
	for i := range 300 {
		tree += strings.Repeat("  ", i) + fmt.Sprintf("[%d, %d) cached · prefix %d\n", i, i+1, i)
	}
	for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 24}, {60, 15}, {300, 100}} {
		for _, withTree := range []string{"", tree} {
			r.Tree = withTree
			screen := KV(ui.Window(&bytes.Buffer{}, false, size[0], size[1]), &r, false)
			lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
			if len(lines) >= size[1] || len(lines) < size[1]-1 {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			for _, l := range lines {
				if w := ui.Width(l); w > size[0] {
					t.Errorf("%v: a line of %d columns: %s", size, w, l)
				}
			}
			if !strings.HasPrefix(lines[0], "cells ") || !strings.Contains(lines[len(lines)-1], "more: uma-cli kv") &&
				size[0] > 40 {
				t.Errorf("%v:\n%s", size, screen)
			}
			if withTree == "" && size[0] >= 60 &&
				(!strings.Contains(screen, "fedcba98  request") || !strings.Contains(screen, "WHY")) {
				t.Errorf("%v: no shortened name or no reason in\n%s", size, screen)
			}
			full := KV(ui.Window(&bytes.Buffer{}, false, size[0], size[1]), &r, true)
			if full != KV(plain(), &r, false) || strings.Count(full, "\n") < 300 ||
				!strings.Contains(full, "fedcba9876543210") {
				t.Errorf("%v: --all shows %d lines", size, strings.Count(full, "\n"))
			}
		}
	}
	// Names that begin alike are not cut to the same one.
	r.Tree = ""
	r.Entries[1].Name = r.Entries[0].Name[:12] + "0000"
	if screen := KV(ui.Window(&bytes.Buffer{}, false, 80, 60), &r, false); !strings.Contains(screen,
		"fedcba9876543210") {
		t.Errorf("an ambiguous name in\n%s", screen)
	}
}
