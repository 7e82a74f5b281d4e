package daemon

import (
	"fmt"

	"github.com/uma-serve/uma-serve/internal/clierr"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
)

// CheckCacheDir reports why --cache-dir cannot be used, so that a daemon with a wrong one does not start: who asks for
// snapshots that survive a restart would find out only after the restart that they were not kept.
func (c *Config) CheckCacheDir() error {
	if c.CacheDir == "" || c.NoPrefixCache {
		return nil
	}
	if err := snapshot.CheckDir(c.CacheDir); err != nil {
		return fmt.Errorf("--cache-dir %s cannot be used: %s", c.CacheDir, clierr.Text(err))
	}
	return nil
}
