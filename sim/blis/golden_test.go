package blis_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/sim/blis"
	"github.com/uma-serve/uma-serve/sim/workload"
)

// golden holds the expected results of BLIS; testdata/README.md says where they come from.
var golden = sync.OnceValue(func() map[string][]byte {
	f, err := os.Open("testdata/golden.tar.gz")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		panic(err)
	}
	files := map[string][]byte{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			panic(err)
		}
		data, err := io.ReadAll(t)
		if err != nil {
			panic(err)
		}
		files[strings.TrimPrefix(h.Name, "./")] = data
	}
})

// goldenDir unpacks what a configuration may refer to.
func goldenDir(t testing.TB) string {
	dir := t.TempDir()
	for name, data := range golden() {
		if strings.HasPrefix(name, "models/") && len(data) > 0 {
			if err := os.MkdirAll(filepath.Join(dir, "models"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func config(t testing.TB, data []byte, dir string) blis.Config {
	cfg, unknown, err := blis.ReadConfig(data, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(unknown) > 0 {
		t.Fatalf("unknown keys %v", unknown)
	}
	return cfg
}

// TestGoldenCases runs every case of the golden set and compares every number.
func TestGoldenCases(t *testing.T) {
	dir := goldenDir(t)
	ran := 0
	for _, name := range slices.Sorted(maps.Keys(golden())) {
		file := filepath.Base(name)
		if !strings.HasPrefix(name, "case") || !strings.HasPrefix(file, "expected") {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(name, ".json"), func(t *testing.T) {
			base := filepath.Dir(name)
			cfg := config(t, golden()[base+"/config.json"], dir)
			rows, err := workload.ReadCSV(bytes.NewReader(golden()[base+"/trace.csv"]))
			if err != nil {
				t.Fatal(err)
			}
			cfg.StrictHorizon = strings.Contains(file, "strict")
			if !strings.Contains(file, "doc_tier") {
				cfg.KVTierModel = "mirror"
			}
			compareRun(t, cfg, rows, golden()[name])
		})
	}
	if ran < 20 {
		t.Fatalf("only %d cases found", ran)
	}
}

// TestGoldenFuzz runs the random cases: one file each, the two-tier ones with both models.
func TestGoldenFuzz(t *testing.T) {
	ran := 0
	for _, name := range slices.Sorted(maps.Keys(golden())) {
		if !strings.HasPrefix(name, "fuzz") || !strings.HasSuffix(name, ".json") {
			continue
		}
		var f struct {
			Config  json.RawMessage
			Trace   [][]any
			Fixed   json.RawMessage `json:"expected_fixed"`
			DocTier json.RawMessage `json:"expected_doc_tier_fixed"`
		}
		if err := json.Unmarshal(golden()[name], &f); err != nil {
			t.Fatal(err)
		}
		cfg := config(t, f.Config, "")
		var rows []workload.Request
		for i, row := range f.Trace {
			r, err := workload.Row(int64(i), func(j int) string {
				switch v := row[j].(type) {
				case float64:
					return strconv.FormatFloat(v, 'f', -1, 64)
				case string:
					return v
				}
				panic("unexpected cell")
			})
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, r)
		}
		for _, run := range []struct {
			tier string
			want json.RawMessage
		}{{"mirror", f.Fixed}, {"offload", f.DocTier}} {
			if run.want == nil {
				continue
			}
			ran++
			t.Run(name+"/"+run.tier, func(t *testing.T) {
				cfg := cfg
				cfg.KVTierModel = run.tier
				compareRun(t, cfg, rows, run.want)
			})
		}
	}
	if ran < 140 {
		t.Fatalf("only %d runs found", ran)
	}
}

func compareRun(t *testing.T, cfg blis.Config, rows []workload.Request, want []byte) {
	t.Helper()
	rep, err := blis.Run(cfg, workload.NewList(rows))
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := rep.WriteJSON(&buf); err != nil {
		t.Fatal(err)
	}
	var g, w map[string]any
	if err := json.Unmarshal(buf.Bytes(), &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	delete(w, "case")
	delete(w, "blis_build")
	diffs := 0
	compare("", g, w, func(path, msg string) {
		if diffs++; diffs <= 20 {
			t.Errorf("%s: %s", path, msg)
		}
	})
}

// compare reports every difference: whole numbers must be equal, others to 1e-9 of their size.
func compare(path string, got, want any, report func(path, msg string)) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			report(path, fmt.Sprintf("got %v, want an object", got))
			return
		}
		for k := range g {
			if _, ok := w[k]; !ok {
				report(path+"."+k, "is not in the expected result")
			}
		}
		for k, v := range w {
			if _, ok := g[k]; !ok {
				report(path+"."+k, "is missing")
				continue
			}
			compare(path+"."+k, g[k], v, report)
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			report(path, fmt.Sprintf("got %d elements, want %d", len(g), len(w)))
			return
		}
		for i := range w {
			compare(fmt.Sprintf("%s[%d]", path, i), g[i], w[i], report)
		}
	case float64:
		g, ok := got.(float64)
		exact := w == math.Trunc(w) && g == math.Trunc(g)
		if !ok || exact && g != w || math.Abs(g-w) > 1e-9*math.Max(1, math.Abs(w)) {
			report(path, fmt.Sprintf("got %v, want %v", got, w))
		}
	default:
		if got != want {
			report(path, fmt.Sprintf("got %v, want %v", got, want))
		}
	}
}
