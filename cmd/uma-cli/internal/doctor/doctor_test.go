package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// healthy are the facts of a machine where all is well.
func healthy() Facts {
	return Facts{ClientVersion: "v1", System: "linux/amd64", Processor: []string{"avx2"}, Socket: "/run/u/uma.sock",
		SocketDir: Mode{Exists: true, UID: 1000, Perm: 0o700}, SocketAt: Mode{Exists: true, UID: 1000, Perm: 0o600},
		UID: 1000, Daemon: &Daemon{Version: "v1", Status: "ok", Engine: "llama.cpp", Device: "cpu", Kernels: "avx2"},
		MemoryTotal: 16 << 30, MemoryAvailable: 8 << 30, CPUs: 8, HugePages: "madvise", Landlock: 4, Seccomp: true,
		Folders: []Folder{{Name: "models folder", Path: "/m", Exists: true, Free: 90 << 30}},
		Models:  []Model{{Name: "qwen", Bytes: 5 << 30}}, Ports: []Port{{Address: "127.0.0.1:8737"}}}
}

func TestHealthy(t *testing.T) {
	f := healthy()
	lines := Check(&f)
	if len(lines) != 12 {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		if l.Mark != OK || l.Remedy != "" {
			t.Errorf("%+v", l)
		}
	}
}

func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *Facts)
		check  string
		mark   Mark
		want   string // part of text or remedy
	}{
		"no daemon": {func(f *Facts) { f.Daemon, f.SocketErr = nil, "no such socket" },
			"daemon", Bad, "uma-serve"},
		"loading":        {func(f *Facts) { f.Daemon.Status = "loading" }, "daemon", Note, "health"},
		"versions":       {func(f *Facts) { f.Daemon.Version = "v0" }, "versions", Note, "restart"},
		"foreign folder": {func(f *Facts) { f.SocketDir.UID = 7 }, "socket", Bad, "replace"},
		"open folder":    {func(f *Facts) { f.SocketDir.Perm = 0o777 }, "socket", Bad, "chmod"},
		"sticky folder":  {func(f *Facts) { f.SocketDir.Perm, f.SocketDir.Sticky = 0o777, true }, "socket", OK, ""},
		"open socket":    {func(f *Facts) { f.SocketAt.Perm = 0o666 }, "socket", Note, "--socket-mode"},
		"no folder":      {func(f *Facts) { f.SocketDir = Mode{} }, "socket", Note, "does not exist"},
		"ggml's kernels": {func(f *Facts) { f.Daemon.Kernels = "ggml" }, "processor", Note, "engines.md"},
		"old processor":  {func(f *Facts) { f.Daemon, f.Processor = nil, nil }, "processor", Note, "amd64-v2"},
		"idle card":      {func(f *Facts) { f.Nvidia, f.NvidiaDriver = true, "570.1" }, "device", Note, "backend-cuda"},
		"used card": {func(f *Facts) { f.Nvidia, f.Daemon.Device = true, "NVIDIA H100 (cuda)" },
			"device", OK, "H100"},
		"used card, another without permission": {func(f *Facts) {
			f.Nvidia, f.Daemon.Device = true, "NVIDIA H100 (cuda)"
			f.RenderNodes, f.RenderErr = []string{"/dev/dri/r"}, "permission denied"
		}, "device", OK, "H100"},
		"render": {func(f *Facts) {
			f.RenderNodes, f.RenderErr = []string{"/dev/dri/r"},
				"permission denied"
		}, "device",
			Note, "usermod"},
		"vulkan":       {func(f *Facts) { f.RenderNodes = []string{"/dev/dri/r"} }, "device", Note, "backend-vulkan"},
		"memory low":   {func(f *Facts) { f.Daemon, f.MemoryAvailable = nil, 1<<20 }, "memory", Note, "small model"},
		"memory ?":     {func(f *Facts) { f.MemoryTotal = 0 }, "memory", Unknown, ""},
		"quota":        {func(f *Facts) { f.CgroupCPUs = 0.5 }, "limits", Note, "CPUQuota"},
		"small cgroup": {func(f *Facts) { f.CgroupMemory = 512 << 20 }, "limits", Note, "MemoryMax"},
		"huge pages":   {func(f *Facts) { f.HugePages = "never" }, "huge pages", Note, "madvise"},
		"no Landlock":  {func(f *Facts) { f.Landlock = 0 }, "sandbox", Note, "5.13"},
		"nothing":      {func(f *Facts) { f.Landlock, f.Seccomp = 0, false }, "sandbox", Note, "not confined"},
		"read-only":    {func(f *Facts) { f.Folders[0].Err = "not writable" }, "models folder", Bad, "writable"},
		"full":         {func(f *Facts) { f.Folders[0].Free = 1 << 20 }, "models folder", Note, "rm"},
		"no models":    {func(f *Facts) { f.Models = nil }, "models", Note, "pull"},
		"large model":  {func(f *Facts) { f.Models[0].Bytes = 1 << 40 }, "models", Note, "quantization"},
		"bad model":    {func(f *Facts) { f.Models[0].Err = "permission denied" }, "model", Note, "download"},
		"port":         {func(f *Facts) { f.Ports[0].Taken = true }, "port", Note, "--listen"},
	} {
		f := healthy()
		c.change(&f)
		lines := Check(&f)
		found := false
		for _, l := range lines {
			if l.Check == c.check {
				found = true
				if l.Mark != c.mark || !strings.Contains(l.Text+l.Remedy, c.want) {
					t.Errorf("%s: %+v", name, l)
				}
				if (l.Mark == Bad || l.Mark == Note) && l.Remedy == "" {
					t.Errorf("%s: no remedy: %+v", name, l)
				}
			}
		}
		if !found || Failed(lines) != (c.mark == Bad || f.Daemon == nil) {
			t.Errorf("%s: found %v, failed %v", name, found, Failed(lines))
		}
	}
}

func TestGather(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"proc/meminfo":                               "MemTotal:       99999999999 kB\n",
		"proc/driver/nvidia/version":                 "NVRM version: Kernel 570.86.10 x",
		"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
		"proc/sys/kernel/seccomp/actions_avail":      "kill allow\n", "file": "x",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := Facts{Socket: filepath.Join(root, "uma.sock"), Folders: []Folder{{Path: filepath.Join(root, "a", "b")},
		{Path: filepath.Join(root, "file", "x")}, {Path: root}}, Ports: []Port{{Address: "127.0.0.1:1"}}}
	f.Gather(root)
	if f.HugePages != "madvise" || !f.Seccomp || !f.Nvidia || f.NvidiaDriver != "570.86.10" {
		t.Errorf("%+v", f)
	}
	if f.MemoryTotal > 0 && f.CgroupMemory != f.MemoryTotal {
		t.Errorf("a limit of the memory is %d of %d", f.CgroupMemory, f.MemoryTotal)
	}
	if f.Folders[0].Err != "" || f.Folders[0].Exists || f.Folders[1].Err == "" || !f.Folders[2].Exists {
		t.Errorf("folders: %+v", f.Folders)
	}
	if f.Ports[0].Taken || !f.SocketDir.Exists || f.SocketAt.Exists {
		t.Errorf("%+v", f)
	}
	if Readable(filepath.Join(root, "file")) != "" || Readable(filepath.Join(root, "none")) == "" {
		t.Error("Readable")
	}
}
