package daemon

import (
	"os"

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

func (c *Config) cacheRAM() (int64, error)   { return 256 << 20, nil }
func (c *Config) cacheDisk() (int64, error)  { return 1 << 30, nil }
func (c *Config) privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }

var _ runtime.Token
