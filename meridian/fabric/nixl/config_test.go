package nixl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParseURL(t *testing.T) {
	key := keyFile(t)
	c, err := ParseURL("nixl://10.0.0.1?peers=10.0.0.1,10.0.0.2,host:99,[::1]:98&pool=1GiB&max=1MiB&library=/l.so" +
		"&socket=/s&namespace_key_file=" + key)
	if err != nil {
		t.Fatal(err)
	}
	// The agent's own address is not a peer.
	if want := []string{"10.0.0.2:7447", "host:99", "[::1]:98"}; c.Listen != "10.0.0.1:7447" ||
		!slices.Equal(c.Peers, want) || c.PoolBytes != 1<<30 || c.MaxBytes != 1<<20 || c.Library != "/l.so" ||
		c.Socket != "/s" || c.Key == nil {
		t.Errorf("%+v", c)
	}
	c, err = ParseURL("nixl://[::1]:7000?namespace_key_file=" + key)
	if err != nil || c.Listen != "[::1]:7000" || c.Library != defaultLibrary || c.MaxBytes > c.PoolBytes/4 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := ParseURL("nixl://h?pool=8MiB&max=4MiB&namespace_key_file=" + key); err == nil ||
		!strings.Contains(err.Error(), "a quarter of the pool") {
		t.Errorf("a value as large as half of the pool: %v", err)
	}
	if _, err := ParseURL("nixl://h?peers=" + strings.Repeat("p,", maxPeers) + "p"); err == nil ||
		!strings.Contains(err.Error(), "at most 64") {
		t.Errorf("too many peers: %v", err)
	}
	if _, err := Open("nixl://h?namespace_key_file=" + key); err == nil || !strings.Contains(err.Error(), "socket") {
		t.Errorf("without an agent: %v", err)
	}
}

func TestWithSocket(t *testing.T) {
	for url, want := range map[string]string{
		"nixl://h?pool=1GiB":  "nixl://h?pool=1GiB&socket=%2Frun%2Fs",
		"nixl://h?socket=/a":  "nixl://h?socket=/a",
		"redis://h":           "redis://h",
		"memory":              "memory",
		"":                    "",
		"nixl://h:x?pool=1":   "nixl://h:x?pool=1",
		"nixl://h?library=/l": "nixl://h?library=%2Fl&socket=%2Frun%2Fs",
	} {
		if got := WithSocket(url, "/run/s"); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}
