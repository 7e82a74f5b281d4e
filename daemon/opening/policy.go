package opening

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/devices"
	"github.com/uma-serve/uma-serve/daemon/report"
	"github.com/uma-serve/uma-serve/internal/host/sandbox"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/model/gguf"
)

// systemFiles are the files and folders that the engine and Go's runtime read, besides the model.
var systemFiles = []string{
	"/proc/self", "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/pressure", "/proc/sys/vm",
	"/sys/devices/system", "/sys/devices/cpu_core", "/sys/devices/cpu_atom",
	"/sys/fs/cgroup", "/sys/kernel/mm", "/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom",
}

// Policy returns the file and network access that an engine process with this configuration needs. Model must be
// a file. It creates the folders that are missing.
func Policy(c *config.Config) sandbox.Policy {
	p := sandbox.Policy{Read: append([]string{}, systemFiles...), Write: []string{"/dev/null"},
		List: []string{config.BackendDir()}}
	p.Read = append(p.Read, ModelFiles(c.Model)...)
	if c.DraftModel != "" {
		p.Read = append(p.Read, ModelFiles(c.DraftModel)...)
	}
	if file := c.Projector(); file != "" {
		p.Read = append(p.Read, file)
	}
	list, _ := c.LoRAs()
	for _, a := range list {
		p.Read = append(p.Read, a.File)
	}
	if strings.ContainsAny(c.ChatTemplate, "/.") {
		p.Read = append(p.Read, c.ChatTemplate)
	}
	folder := func(dir string) {
		if os.MkdirAll(dir, 0o700) == nil { // otherwise the code that uses it reports the error
			p.Write = append(p.Write, dir)
		}
	}
	if c.CacheDir != "" {
		folder(c.CacheDir)
	}
	if c.SlotSavePath != "" {
		folder(c.SlotSavePath)
	}
	if dir, err := os.UserCacheDir(); err == nil {
		folder(filepath.Join(dir, "uma-serve", "cost"))
		folder(report.StateFolder())
	}
	if c.Trace != "" {
		folder(filepath.Dir(c.Trace))
	}
	if c.Fabric != "" || c.Telemetry != "" {
		p.Network = true
		p.Read = append(p.Read, "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki",
			"/usr/share/ca-certificates")
		p.Read = append(p.Read, fabric.Files(c.Fabric)...)
	}
	if c.OnDevice() {
		files := devices.System().Files(c.Backends.Names)
		p.Read = append(append(p.Read, files.Read...), config.BackendDir())
		p.Devices = files.Devices
		for _, dir := range files.Folders {
			folder(dir)
		}
	}
	return p
}

// ModelFiles returns the files of a model, in order: all parts of a split one. It lists no folder, because an engine
// process may not.
func ModelFiles(path string) []string {
	files := []string{path}
	prefix, no, count, split := gguf.Shard(path)
	for n := 2; split && no == 1 && n <= count; n++ {
		part := gguf.ShardName(prefix, n, count)
		if _, err := os.Stat(part); err != nil {
			break // opening the file reports the error
		}
		files = append(files, part)
	}
	return files
}
