// Package nixltest describes NIXL agents for tests with the real library, which scripts/nixl.sh installs.
package nixltest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Variable names the library libnixl_capi.so that scripts/nixl.sh has installed.
const Variable = "UMA_NIXL"

// Library returns the path of the real library. Without it the test is skipped.
func Library(t testing.TB) string {
	t.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		t.Skipf("%s is not set; scripts/nixl.sh FOLDER installs NIXL and prints it", Variable)
	}
	return path
}

// Peers returns the URLs of n agents that are each other's peers, on free ports of the loopback interface, without the
// option socket. more are options such as "&pool=64MiB".
func Peers(t testing.TB, n int, library, more string) []string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	addresses := make([]string, n)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses[i] = l.Addr().String()
	}
	urls := make([]string, n)
	for i, address := range addresses {
		urls[i] = fmt.Sprintf("nixl://%s?peers=%s&library=%s&namespace_key_file=%s%s", address,
			strings.Join(addresses, ","), library, key, more)
	}
	return urls
}
