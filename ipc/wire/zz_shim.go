package wire

type Tier string

const (
	TierNone   Tier = "none"
	TierDevice Tier = "device"
	TierHost   Tier = "host"
	TierDisk   Tier = "disk"
	TierFabric Tier = "fabric"
)
