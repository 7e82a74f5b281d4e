// Package calibration saves the fitted cost model of a GGUF model on this machine, so that a restart is calibrated.
package calibration

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/zeebo/blake3"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/prepare"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot/format"
	"github.com/uma-serve/uma-serve/runtime"
	"github.com/uma-serve/uma-serve/sched"
)

// Saved is a file per model in the user's cache directory. One that cannot be read or written costs some seconds of
// learning.
type Saved struct {
	Cost   sched.CostState // of an earlier run
	Origin format.Origin   // of the model's cells

	log   *slog.Logger
	path  string // "" = not saved
	saved time.Time
}

// saveEvery is the minimum time between two writes of the cost model. The loop writes it while it idles.
const saveEvery = time.Minute

// Open reads the cost model that an earlier run saved for the model in files.
func Open(cfg *config.Config, files []string, m *prepare.Model, log *slog.Logger) *Saved {
	c := &Saved{log: log, saved: time.Now()}
	c.Origin = format.Origin{EngineBuild: m.Caps.EngineBuild, KVTypeK: m.Info.KVTypeK, KVTypeV: m.Info.KVTypeV}
	sum, err := snapshot.Fingerprint(files, "flash_attn="+cfg.FlashAttn)
	if err != nil {
		// The model is not a file (in tests, or deleted): identify it by its metadata.
		sum, err = blake3.Sum256(fmt.Appendf(nil, "%+v", m.Info)), nil
	}
	c.Origin.Fingerprint = sum
	dir, err := os.UserCacheDir()
	if err != nil {
		return c
	}
	c.path = filepath.Join(dir, "uma-serve", "cost", fmt.Sprintf("%s-t%d-%s%s.json", hex.EncodeToString(sum[:8]),
		m.Caps.Threads, m.Caps.Device, m.Caps.Kernels))
	if m.Caps.Device == runtime.DeviceFake {
		c.path = ""
		return c
	}
	b, err := os.ReadFile(c.path)
	if err == nil {
		err = json.Unmarshal(b, &c.Cost)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the saved cost model is not used", "file", c.path, "error", err)
		c.Cost = sched.CostState{}
	}
	return c
}

// Save writes the state if saveEvery has passed, or atOnce.
func (c *Saved) Save(state func() sched.CostState, now time.Time, atOnce bool) {
	if c.path == "" || !atOnce && now.Sub(c.saved) < saveEvery {
		return
	}
	c.saved = now
	if err := writeFile(c.path, state()); err != nil {
		c.log.Warn("the cost model is not saved", "error", err)
		c.path = ""
	}
}

// writeFile replaces a file atomically.
func writeFile(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".cost-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(append(b, '\n')); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
