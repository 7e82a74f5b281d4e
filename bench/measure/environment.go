package measure

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/uma-serve/uma-serve/bench/report"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
)

// Environment describes the machine and flags of this process's reports. It has no time and no host name.
func Environment(flags map[string]string) report.Environment {
	e := report.Environment{CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		MemByte: int64(hostmem.Read().Total), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		Version: buildinfo.Version, Flags: flags}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			switch {
			case s.Key == "vcs.revision":
				e.Commit = s.Value[:min(12, len(s.Value))] + e.Commit
			case s.Key == "vcs.modified" && s.Value == "true":
				e.Commit += "+changes"
			}
		}
	}
	return e
}

// field returns a line of a file like /proc/cpuinfo, "" where the system has none.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
