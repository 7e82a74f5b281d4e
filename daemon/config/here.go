package config

import (
	"errors"
	"fmt"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/kvsnap/snapshot"
	"github.com/uma-serve/uma-serve/telemetry"
)

// CheckHere returns an error for an option that this program or this machine cannot honour: a daemon that started
// without its snapshot directory or its traces would lose them unnoticed.
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
