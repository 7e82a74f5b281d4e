package tiers

import (
	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/metrics"
)

// Wire and Metric are the core's tiers in the protocol and in the metrics.
var (
	Wire   = [core.NumTiers]wire.CacheTier{wire.TierDevice, wire.TierHost, wire.TierDisk, wire.TierFabric}
	Metric = [core.NumTiers]metrics.Tier{metrics.Device, metrics.Host, metrics.Disk, metrics.Fabric}
)
