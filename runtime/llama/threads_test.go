package llama

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestLinuxCores(t *testing.T) {
	for _, c := range []struct {
		siblings []string
		want     int
	}{
		{nil, 0},
		{[]string{"0", "1"}, 2},
		{[]string{"0-1", "0-1"}, 1},
		{[]string{"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"}, 4},
	} {
		root := t.TempDir()
		for i, s := range c.siblings {
			dir := filepath.Join(root, fmt.Sprintf("cpu%d", i), "topology")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "thread_siblings_list"), []byte(s+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := linuxCores(root); got != c.want {
			t.Errorf("siblings %v are %d cores, want %d", c.siblings, got, c.want)
		}
	}
	if n := defaultThreads(); n < 1 {
		t.Errorf("%d threads by default", n)
	}
}
