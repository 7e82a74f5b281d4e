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
		"nixl-synth":                               "nixl-synth",
		"nixl-synth?cap=1MiB":                      "nixl-synth",
		"redis://" + m.Addr() + "/1":               "valkey",
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
		"":                               `"" is not a fabric; want nixl-synth`,
		"nixl":                           `"nixl" is not a fabric`,
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
		"http://h":                       `scheme "http" is unknown`,
		"nixl-synth+redis://h":           `scheme "nixl-synth+redis"`,
		"nixl-synth?cap=0":               "option cap: nixl-synth: the cap is 0 bytes",
		"nixl-synth?cap=-1":              `option cap: "-1" is not a size`,
		"nixl-synth?cap=many":            `option cap: "many" is not a size`,
		"nixl-synth?cap=9999999999GiB":   "option cap",
		"nixl-synth?size=1":              `option "size" is unknown; nixl-synth takes cap`,
		"nixl-synth?%zz":                 "invalid URL escape",
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
