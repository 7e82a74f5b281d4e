package fabric_test

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
)

func TestOpen(t *testing.T) {
	m := miniredis.RunT(t)
	for url, label := range map[string]string{
		"memory":                     "memory",
		"memory?cap=1MiB":            "memory",
		"redis://" + m.Addr() + "/1": "valkey",
		"valkey://" + m.Addr() + "?ttl=1h&conns=2": "valkey",
	} {
		f, err := fabric.Open(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if f.Label() != label {
			t.Errorf("%s: label %q, want %q", url, f.Label(), label)
		}
		fabrictest.MustPush(t, f, "k", []byte(url))
		fabrictest.WantPull(t, f, "k", []byte(url))
		f.Close()
	}
}

func TestOpenRefused(t *testing.T) {
	for url, says := range map[string]string{
		"":                               `"" is not a fabric; want memory`,
		"nixl":                           `"nixl" is not a fabric`,
		"nixl-synth?size=1":              `option "size" is unknown; nixl-synth takes cap`,
		"mooncake":                       `"mooncake" is not a fabric`,
		"localhost:6379":                 `"localhost:6379" is not a fabric`,
		"mooncake://":                    "host is missing",
		"mooncake://h":                   "option namespace_key_file is missing",
		"mooncake://u@h":                 "has no users or passwords",
		"mooncake://h/1":                 `path "/1"`,
		"mooncake://h?max=1":             "option max: 1 is outside of",
		"mooncake://h?metadata=h":        "P2PHANDSHAKE",
		"mooncake://h?connect_timeout=x": "option connect_timeout",
		"mooncake://h?x=1":               "option x: is unknown",
		"mooncake://h?max=4KiB&max=8KiB": "option max is given 2 times",
		"nixl://":                        "address is missing",
		"nixl://h":                       "option namespace_key_file is missing",
		"nixl://u@h":                     "have no users or passwords",
		"nixl://h/1":                     `path "/1"`,
		"nixl://h?x=1":                   "option x: is unknown",
		"nixl://h?pool=1":                "option pool: 1 is outside of",
		"nixl://h?max=1":                 "option max: 1 is outside of",
		"nixl://h?socket=x":              `option socket: "x", want an absolute path`,
		"nixl://h?peers=a,b:0":           `option peers: "b:0"`,
		"nixl://h?peers=a,,b":            `option peers: ":7447"`,
		"nixl://h?library=":              "option library: is empty",
		"nixl://h?pool=2MiB&pool=3MiB":   "option pool is given 2 times",
		"http://h":                       `scheme "http" is unknown`,
		"memory+redis://h":               `scheme "memory+redis"`,
		"memory?cap=0":                   "option cap: memory: the cap is 0 bytes",
		"memory?cap=-1":                  `option cap: "-1" is not a size`,
		"memory?cap=many":                `option cap: "many" is not a size`,
		"memory?cap=9999999999GiB":       "option cap",
		"memory?size=1":                  `option "size" is unknown; memory takes cap`,
		"memory?%zz":                     "invalid URL escape",
		"redis://":                       "host is missing",
		"redis://u:secret@h:port":        "invalid port",
		"redis://h?ttl=soon":             "option ttl",
	} {
		f, err := fabric.Open(url)
		if err == nil || f != nil || !strings.Contains(err.Error(), says) ||
			!strings.HasPrefix(err.Error(), "fabric URL: ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want it to say %q", url, err, says)
		}
	}
}
