package daemon

import "os"

func (c *Config) privileged(uid uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }
