package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/cpu"

	"github.com/uma-serve/uma-serve/internal/host/cpus"
	"github.com/uma-serve/uma-serve/internal/host/hostmem"
)

// maxFile is the largest part of a system file that is read, in bytes.
const maxFile = 64 << 10

// Gather reads what the system says. root is / but in tests. Folders and Ports are completed, the rest of f stays.
func (f *Facts) Gather(root string) {
	f.System, f.UID = runtime.GOOS+"/"+runtime.GOARCH, os.Geteuid()
	f.Processor = processors()
	m := hostmem.Read()
	f.MemoryTotal, f.MemoryAvailable = m.Total, m.Available
	if installed := meminfo(line(root, "proc/meminfo")); installed > m.Total {
		f.CgroupMemory = m.Total
	}
	t := cpus.ReadTopology()
	f.CPUs, f.CgroupCPUs = max(len(t.Allowed), 1), t.Quota
	f.HugePages = chosen(line(root, "sys/kernel/mm/transparent_hugepage/enabled"))
	f.Landlock = landlock()
	f.Seccomp = line(root, "proc/sys/kernel/seccomp/actions_avail") != ""
	if _, err := os.Stat(filepath.Join(root, "proc/driver/nvidia")); err == nil {
		f.Nvidia, f.NvidiaDriver = true, version(line(root, "proc/driver/nvidia/version"))
	}
	f.RenderNodes, _ = filepath.Glob(filepath.Join(root, "dev/dri/renderD*")) // the pattern is right
	if len(f.RenderNodes) > 0 {
		if err := canUse(f.RenderNodes[0]); err != nil {
			f.RenderErr = err.Error()
		}
	}
	f.SocketAt, f.SocketDir = modeOf(f.Socket), modeOf(filepath.Dir(f.Socket))
	for i := range f.Folders {
		f.Folders[i].look()
	}
	for i := range f.Ports {
		f.Ports[i].Taken = listens(f.Ports[i].Address)
	}
}

// line returns the text of a file of the system, "" if it cannot be read.
func line(root, path string) string {
	f, err := os.Open(filepath.Join(root, path))
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, maxFile)
	n, err := f.Read(b)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b[:n]))
}

// meminfo returns MemTotal in bytes.
func meminfo(text string) uint64 {
	for l := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(l, "MemTotal:"); ok {
			n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 53)
			if err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// chosen returns the word in brackets of "always [madvise] never".
func chosen(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// version returns the first word of digits and dots: that of /proc/driver/nvidia/version.
func version(text string) string {
	for word := range strings.FieldsSeq(text) {
		if strings.Contains(word, ".") && strings.Trim(word, "0123456789.") == "" {
			return word
		}
	}
	return ""
}

func processors() (names []string) {
	for _, c := range []struct {
		name string
		has  bool
	}{
		{"avx2", cpu.X86.HasAVX2 && cpu.X86.HasFMA}, {"avx512", cpu.X86.HasAVX512F},
		{"avx512vnni", cpu.X86.HasAVX512VNNI}, {"amx", cpu.X86.HasAMXInt8}, {"dotprod", cpu.ARM64.HasASIMDDP},
	} {
		if c.has {
			names = append(names, c.name)
		}
	}
	return names
}

func modeOf(path string) Mode {
	info, err := os.Stat(path)
	if err != nil {
		return Mode{}
	}
	m := Mode{Exists: true, Perm: uint32(info.Mode().Perm()), Sticky: info.Mode()&fs.ModeSticky != 0}
	m.UID = uidOf(info)
	return m
}

// look completes a folder: of one that does not exist, the nearest folder above is what counts.
func (d *Folder) look() {
	at := d.Path
	for {
		info, err := os.Stat(at)
		if err == nil {
			d.Exists = at == d.Path
			if !info.IsDir() {
				d.Err = at + " is no folder"
				return
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			d.Err = err.Error()
			return
		}
		at = filepath.Dir(at)
	}
	if err := canFill(at); err != nil {
		d.Err = "it is not writable for your user"
		return
	}
	d.Free = free(at)
}

// listens reports whether a program accepts connections at an address of this machine.
func listens(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

// Readable says why a file cannot be read, "" if it can.
func Readable(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 4)); err != nil {
		return err.Error()
	}
	return ""
}
