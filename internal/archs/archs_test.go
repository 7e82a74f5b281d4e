//go:build cgo && (llama_engine || llama_system)

package main

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/programs"
)

// TestRecordedArchitectures: one architecture in ten answers as llama-server of the same tree once did, token for token
// or parting at a near tie, whatever it is asked beside, after or in the place of. `make archs ARGS=-rewrite` records
// the answers.
func TestRecordedArchitectures(t *testing.T) {
	skeletons, err := filepath.Glob(filepath.Join("testdata", "*"+skeletonEnd))
	if err != nil || len(skeletons) == 0 {
		t.Fatalf("no recorded models: %v", err)
	}
	dir := t.TempDir()
	if err := programs.Build(dir, "uma-serve"); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "uma-serve")
	for _, skeleton := range skeletons {
		name := strings.TrimSuffix(filepath.Base(skeleton), skeletonEnd)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known, err := recordedAnswers(strings.TrimSuffix(skeleton, skeletonEnd) + answersEnd)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			model := filepath.Join(dir, name+".gguf")
			if err := revive(skeleton, model); err != nil {
				t.Fatal(err)
			}
			r := run(tools{ours: bin}, model, dir, known)
			if r.Refused != "" {
				t.Fatalf("refused: %s", r.Refused)
			}
			for _, kind := range kinds {
				switch c := r.cell(kind); {
				case c.Failed != "":
					t.Errorf("%s: %s", kind, c.Failed)
				case c.Apart > 0:
					t.Errorf("%s: %d of %d answers part by %.3g in log-probability", kind, c.Apart, c.Answers, c.Gap)
				case c.Answers == 0 || c.Tokens < c.Answers:
					t.Errorf("%s: %d tokens of %d answers were compared", kind, c.Tokens, c.Answers)
				}
			}
		})
	}
}

// recordedAnswers reads what recordOne wrote.
func recordedAnswers(path string) (map[string]*answer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	known := map[string]*answer{}
	return known, json.NewDecoder(z).Decode(&known)
}
