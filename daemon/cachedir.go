package daemon

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/telemetry"
)

// CheckHere reports which option cannot be honoured by this program or on this machine, so that a daemon with such a
// one does not start: who asks for snapshots that survive a restart, or for traces, would find out only later that
// there are none.
func (c *Config) CheckHere() error {
	if c.Telemetry != "" && !telemetry.Built {
		return errors.New("--telemetry-endpoint: this uma-serve is built without OTLP; make TAGS=otlp builds it in, " +
			"and the packages have it")
	}
	if c.CacheDir == "" || c.NoPrefixCache {
		return nil
	}
	if err := snapshot.CheckDir(c.CacheDir); err != nil {
		return fmt.Errorf("--cache-dir %s cannot be used: %s", c.CacheDir, clierr.Text(err))
	}
	return nil
}
