package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// KVEventsAddress parses --kv-events.
func (c *Config) KVEventsAddress() (netip.AddrPort, error) {
	rest, ok := strings.CutPrefix(c.KVEvents, "tcp://")
	a, err := netip.ParseAddrPort(rest)
	switch {
	case !ok || err != nil:
		return a, fmt.Errorf("--kv-events is %q; it must be tcp://ADDRESS:PORT, such as tcp://127.0.0.1:5557",
			c.KVEvents)
	case !a.Addr().IsLoopback():
		return a, fmt.Errorf("--kv-events %s can be reached by other machines, whose users the kernel does not know, "+
			"and the events tell the tokens of prompts: use 127.0.0.1 or [::1], and a tunnel to the router's machine",
			c.KVEvents)
	case a.Port() == 65535:
		return a, fmt.Errorf("--kv-events is %s; the replay socket is at the next port: use a port below 65535",
			c.KVEvents)
	}
	return a, nil
}
