package hostmem

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRead(t *testing.T) {
	meminfo := "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:    6000 kB\nHugePages_Total:       0\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  Memory
	}{
		"nothing": {nil, Memory{}},
		"machine": {map[string]string{"proc/meminfo": meminfo}, Memory{8000 << 10, 6000 << 10}},
		"unlimited group": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n"}, Memory{8000 << 10, 6000 << 10}},
		"limited above": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "1:cpu:/x\n0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4096000\n",
			"sys/fs/cgroup/a/memory.current": "1024000\n",
			"sys/fs/cgroup/a/memory.stat":    "anon 1\ninactive_file 24000\n"},
			Memory{4096000, 3096000}},
		"container root": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "2000\n"}, Memory{1000, 0}},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := read(root); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestReadHere(t *testing.T) {
	if m := Read(); m.Total == 0 || m.Available > m.Total {
		t.Errorf("%+v", m)
	}
}
