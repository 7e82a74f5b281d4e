package daemon

import (
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/meridian"
	"github.com/uma-serve/uma-serve/runtime"
)

type zzConfig struct {
	NoPrefixCache                                    bool
	SharePrefixes, CacheDir, Fabric, StateDir, Trace string
	Meridian                                         meridian.Config
	KVBlockTokens, OffloadThresholdBlocks            int
	ITLTargetMs                                      float64
}

func (c *Config) cacheRAM() (int64, error)                     { return 256 << 20, nil }
func (c *Config) cacheDisk() (int64, error)                    { return 1 << 30, nil }
func templateVars(w *wire.Request) map[string]any              { return nil }
func (m *model) thinkOptions(w *wire.Request) meridian.Options { return m.think.Options() }

var _ runtime.Token
