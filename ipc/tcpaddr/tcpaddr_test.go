package tcpaddr

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:8737": "127.0.0.1:8737", "8737": "127.0.0.1:8737", "0": "127.0.0.1:0", "localhost:1": "127.0.0.1:1",
		"[::1]:8737": "[::1]:8737", "[::ffff:127.0.0.1]:5": "127.0.0.1:5", "0.0.0.0:80": "0.0.0.0:80",
		"[::]:80":           "[::]:80",
		"[fe80::1%eth0]:80": "[fe80::1%eth0]:80",
	} {
		if got, err := Parse(in); err != nil || got.String() != want {
			t.Errorf("%q is %v, want %s (%v)", in, got, want, err)
		}
	}
	for in, want := range map[string]string{
		"": "no port", "x": "no port", "127.0.0.1": "no address with a port", "::1": "no address with a port",
		"[::1]":          "no address with a port",
		"example.org:80": "names no IP address", ":8737": "names no IP address", "127.0.0.1:65536": "no port between",
		"127.0.0.1:-1":   "no port between",
		"127.0.0.1:http": "no port between", "unix:///x": "names no IP address",
	} {
		if got, err := Parse(in); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "127.0.0.1:8737") {
			t.Errorf("%q is %v, %v; want %q", in, got, err, want)
		}
	}
}
