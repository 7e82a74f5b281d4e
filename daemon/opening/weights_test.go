package opening

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/internal/host/hugefile"
)

// parts makes a model in two files of n bytes each and returns the name of the first.
func parts(t *testing.T, n int64) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, name), n); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "m-00001-of-00002.gguf")
}

// TestReadWeights: reading has the first nine tenths of the progress and the engine the rest, but where nothing is read
// ahead.
func TestReadWeights(t *testing.T) {
	large, small := parts(t, hugefile.Smallest), parts(t, 4096)
	for name, c := range map[string]struct {
		path  string
		c     config.Config
		ahead bool
	}{
		"mapped":    {large, config.Config{}, true},
		"copied":    {large, config.Config{NoMMap: true}, false},
		"small":     {small, config.Config{}, false},
		"not there": {large + ".none", config.Config{}, false},
		"one part":  {strings.Replace(large, "00001-of", "00002-of", 1), config.Config{}, true},
	} {
		var shares []float32
		var said bytes.Buffer
		engine := ReadWeights(&c.c, c.path, func(share float32) bool {
			shares = append(shares, share)
			return true
		}, slog.New(slog.NewTextHandler(&said, nil)))
		before := len(shares)
		engine(0.5)
		read := strings.Contains(said.String(), "msg=weights")
		_, cannot := hugefile.Read(c.path, math.MaxUint64, hugefile.Options{}) // not every system can read ahead
		if want := c.ahead && cannot == nil; read != want || before > 0 != want {
			t.Errorf("%s: %d calls while reading, the log has %q", name, before, said.String())
		}
		for i := 1; i < len(shares); i++ {
			if shares[i] <= shares[i-1] {
				t.Errorf("%s: the share goes back: %v", name, shares)
			}
		}
		want := float32(0.5)
		if read {
			want = 0.95
		}
		if got := shares[len(shares)-1]; got != want {
			t.Errorf("%s: half of the engine's load is a share of %v, want %v", name, got, want)
		}
	}
}

// TestReadWeightsStops: a load that was stopped reads no further file.
func TestReadWeightsStops(t *testing.T) {
	calls := 0
	var said bytes.Buffer
	ReadWeights(&config.Config{}, parts(t, hugefile.Smallest), func(float32) bool {
		calls++
		return false
	}, slog.New(slog.NewTextHandler(&said, nil)))
	if calls > 1 || said.Len() > 0 {
		t.Errorf("%d calls, the log has %s", calls, said.String())
	}
}
