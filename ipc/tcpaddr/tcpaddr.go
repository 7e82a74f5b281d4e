// Package tcpaddr reads addresses that a program listens on.
package tcpaddr

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Parse reads HOST:PORT where HOST is an IP address or localhost (127.0.0.1), or a port alone, which means 127.0.0.1.
// Port 0 lets the kernel choose. An IPv4-mapped IPv6 address is returned as IPv4.
func Parse(s string) (netip.AddrPort, error) {
	bad := func(why string) (netip.AddrPort, error) {
		return netip.AddrPort{},
			fmt.Errorf("%.100q %s; it must be an address and a port, such as 127.0.0.1:8737 or [::1]:8737", s, why)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		if strings.ContainsAny(s, ":[].") {
			return bad("is no address with a port")
		}
		host, port = "127.0.0.1", s
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return bad("names no IP address")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return bad("has no port between 0 and 65535")
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}
