// Package doctor judges what a machine and a daemon say about themselves: one line for each thing that can be wrong,
// with the remedy. Checks are pure functions of Facts; Gather reads the facts.
package doctor

import (
	"fmt"
	"strings"

	"github.com/uma-serve/uma-serve/internal/cli/ui"
)

// Mark is the verdict of a line.
type Mark string

// Marks, from good to bad. Only Bad makes the exit status 1.
const (
	OK      Mark = "ok"
	Note    Mark = "note" // works, and could be better
	Bad     Mark = "bad"  // does not work
	Unknown Mark = "unknown"
)

// Line is the result of one check.
type Line struct {
	Check  string `json:"check"`
	Mark   Mark   `json:"mark"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"` // what to do, "" where nothing is
}

// Facts are the input of the checks. Zero values mean that a fact is not known.
type Facts struct {
	ClientVersion string
	System        string // GOOS/GOARCH
	Processor     []string

	Socket    string
	SocketErr string // why no daemon answers; "" = one answers
	SocketDir Mode
	SocketAt  Mode
	UID       int

	Daemon *Daemon // nil: none answers

	MemoryTotal, MemoryAvailable uint64 // bytes
	CgroupMemory                 uint64 // limit in bytes; 0 = none
	CgroupCPUs                   float64
	CPUs                         int
	HugePages                    string // of /sys/kernel/mm/transparent_hugepage/enabled: always, madvise, never
	Landlock                     int    // ABI; 0 = none, -1 = not known
	Seccomp                      bool

	Nvidia       bool   // /proc/driver/nvidia exists
	NvidiaDriver string // its version
	RenderNodes  []string
	RenderErr    string // why the first render node cannot be opened

	Folders []Folder
	Models  []Model
	Ports   []Port
}

// Daemon holds facts that a daemon tells about itself.
type Daemon struct {
	Version, Status, Engine, Device, Kernels string
}

// Mode is a file's owner and permission bits; Exists is false where there is none.
type Mode struct {
	Exists bool
	UID    int
	Perm   uint32
	Sticky bool
}

// Folder is one that daemon or client write in.
type Folder struct {
	Name, Path string
	Exists     bool
	Err        string // why nothing can be written there
	Free       uint64 // bytes
}

// Model is one of this machine.
type Model struct {
	Name  string
	Bytes uint64
	Err   string // why it cannot be read
}

// Port is one that other programs' clients look for.
type Port struct {
	Address string
	Taken   bool // a program listens there
}

// Check returns a line for each thing, in a fixed order.
func Check(f *Facts) []Line {
	lines := []Line{daemonLine(f), versions(f), socket(f), processor(f), device(f), memory(f), cgroup(f), hugePages(f),
		sandbox(f)}
	for _, d := range f.Folders {
		lines = append(lines, folder(d))
	}
	lines = append(lines, models(f)...)
	for _, p := range f.Ports {
		lines = append(lines, port(p))
	}
	return lines
}

// Failed reports whether a line is Bad.
func Failed(lines []Line) bool {
	for _, l := range lines {
		if l.Mark == Bad {
			return true
		}
	}
	return false
}

func daemonLine(f *Facts) Line {
	l := Line{Check: "daemon", Mark: OK}
	switch {
	case f.Daemon == nil:
		l.Mark, l.Text = Bad, f.SocketErr
		l.Remedy = "start it: uma-serve, or systemctl --user start uma-serve; --socket names another socket"
	default:
		l.Text = f.Daemon.Status + ", " + f.Daemon.Engine
		if f.Daemon.Status != "ok" && f.Daemon.Status != "ready" {
			l.Mark, l.Remedy = Note, "uma-cli health says more; journalctl --user -u uma-serve has the log"
		}
	}
	return l
}

func versions(f *Facts) Line {
	l := Line{Check: "versions", Mark: OK, Text: "uma-cli " + f.ClientVersion}
	if f.Daemon == nil {
		return l
	}
	l.Text += ", daemon " + f.Daemon.Version
	if f.Daemon.Version != f.ClientVersion {
		l.Mark = Note
		l.Remedy = "restart the daemon if it was upgraded: systemctl --user restart uma-serve"
	}
	return l
}

// socket checks who could replace the socket, or is kept from it.
func socket(f *Facts) Line {
	l := Line{Check: "socket", Mark: OK, Text: f.Socket}
	dir := f.SocketDir
	switch {
	case !dir.Exists:
		l.Mark, l.Text = Note, f.Socket+": its folder does not exist yet"
		l.Remedy = "the daemon makes it"
	case dir.UID != 0 && dir.UID != f.UID:
		l.Mark, l.Text = Bad, fmt.Sprintf("%s: user %d owns its folder and could replace the socket", f.Socket, dir.UID)
		l.Remedy = "choose a folder of yours with --socket"
	case dir.Perm&0o002 != 0 && !dir.Sticky:
		l.Mark, l.Text = Bad, fmt.Sprintf("%s: all users may write in its folder (mode %04o)", f.Socket, dir.Perm)
		l.Remedy = "chmod o-w the folder"
	case f.SocketAt.Exists:
		l.Text += fmt.Sprintf(", mode %04o", f.SocketAt.Perm)
		if f.SocketAt.Perm&0o002 != 0 {
			l.Mark, l.Remedy = Note, "every user of this machine may connect: --socket-mode 0660 with --socket-group"
		}
	}
	return l
}

// processor says which of our kernels a processor gets.
func processor(f *Facts) Line {
	l := Line{Check: "processor", Mark: OK, Text: f.System}
	if len(f.Processor) > 0 {
		l.Text += ": " + strings.Join(f.Processor, ", ")
	}
	if f.Daemon != nil && f.Daemon.Kernels != "" {
		l.Text += "; kernels: " + f.Daemon.Kernels
		if f.Daemon.Kernels == "ggml" {
			l.Mark, l.Remedy = Note, "uma-serve's own kernels are not used: docs/engines.md says what they need"
		}
		return l
	}
	if strings.HasSuffix(f.System, "/amd64") && !has(f.Processor, "avx2") {
		l.Mark, l.Remedy = Note, "no AVX2: take the archive amd64-v2, or build with make; answers are slow"
	}
	return l
}

func has(list []string, name string) bool {
	for _, v := range list {
		if v == name {
			return true
		}
	}
	return false
}

// device checks a graphics processor that the daemon does not use.
func device(f *Facts) Line {
	l := Line{Check: "device", Mark: OK, Text: "processor"}
	if f.Daemon != nil && f.Daemon.Device != "" {
		l.Text = f.Daemon.Device
	}
	onCPU := f.Daemon == nil || f.Daemon.Device == "" || strings.HasPrefix(strings.ToLower(f.Daemon.Device), "cpu")
	switch {
	case f.Nvidia && onCPU:
		l.Mark = Note
		l.Text += fmt.Sprintf("; an NVIDIA card is here (driver %s) and not used", orUnknown(f.NvidiaDriver))
		l.Remedy = "make backend-cuda builds what is needed beside the programs; then restart the daemon"
	case len(f.RenderNodes) > 0 && f.RenderErr != "" && onCPU:
		l.Mark, l.Text = Note, l.Text+"; "+f.RenderNodes[0]+": "+f.RenderErr
		l.Remedy = "add your user to the group render: sudo usermod -aG render $USER, then log in again"
	case len(f.RenderNodes) > 0 && onCPU:
		l.Mark, l.Text = Note, l.Text+"; "+f.RenderNodes[0]+" is not used"
		l.Remedy = "make backend-vulkan builds what is needed beside the programs; then restart the daemon"
	}
	return l
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// leastMemory is the least that a useful model needs with its cache, in bytes.
const leastMemory = 1 << 30

func memory(f *Facts) Line {
	if f.MemoryTotal == 0 {
		return Line{Check: "memory", Mark: Unknown, Text: "the system does not say"}
	}
	l := Line{Check: "memory", Mark: OK, Text: fmt.Sprintf("%s available of %s", ui.Bytes(f.MemoryAvailable),
		ui.Bytes(f.MemoryTotal))}
	if f.MemoryAvailable < leastMemory && f.Daemon == nil {
		l.Mark, l.Remedy = Note, "end other programs, or choose a small model"
	}
	return l
}

// cgroup checks the limits of a container or a service.
func cgroup(f *Facts) Line {
	l := Line{Check: "limits", Mark: OK, Text: "no limit of a container or service"}
	var parts []string
	if f.CgroupMemory > 0 {
		parts = append(parts, "memory "+ui.Bytes(f.CgroupMemory))
	}
	if f.CgroupCPUs > 0 {
		parts = append(parts, fmt.Sprintf("%.3g processors of %d", f.CgroupCPUs, f.CPUs))
	}
	if len(parts) == 0 {
		return l
	}
	l.Text = strings.Join(parts, ", ")
	switch {
	case f.CgroupCPUs > 0 && f.CgroupCPUs < 1:
		l.Mark, l.Remedy = Note, "less than one processor: steps stop in the middle; raise CPUQuota= or --cpus"
	case f.CgroupMemory > 0 && f.CgroupMemory < leastMemory:
		l.Mark, l.Remedy = Note, "few models fit: raise MemoryMax= or --memory of the container"
	}
	return l
}

// hugePages is information: the measured kernels gain nothing by them, but where they are off altogether the KV cache
// costs more misses of the TLB.
func hugePages(f *Facts) Line {
	switch f.HugePages {
	case "":
		return Line{Check: "huge pages", Mark: Unknown, Text: "the system does not say"}
	case "never":
		return Line{Check: "huge pages", Mark: Note, Text: "off", Remedy: "echo madvise | sudo tee " +
			"/sys/kernel/mm/transparent_hugepage/enabled, where caches of many gigabytes are used"}
	}
	return Line{Check: "huge pages", Mark: OK, Text: f.HugePages}
}

func sandbox(f *Facts) Line {
	l := Line{Check: "sandbox", Mark: OK, Text: fmt.Sprintf("Landlock %d, seccomp", f.Landlock)}
	switch {
	case f.Landlock < 0:
		return Line{Check: "sandbox", Mark: Unknown, Text: "the system does not say"}
	case f.Landlock == 0 && !f.Seccomp:
		l.Text = "neither Landlock nor seccomp: engine processes are not confined"
	case f.Landlock == 0:
		l.Text = "seccomp, no Landlock: files are guarded by the supervisor alone"
	case !f.Seccomp:
		l.Text = fmt.Sprintf("Landlock %d, no seccomp", f.Landlock)
	default:
		return l
	}
	l.Mark, l.Remedy = Note, "a kernel of 5.13 or later with Landlock (lsm=landlock) confines engine processes"
	return l
}

// leastFree is the room for a small model or a few snapshots.
const leastFree = 2 << 30

func folder(d Folder) Line {
	l := Line{Check: d.Name, Mark: OK, Text: d.Path}
	switch {
	case d.Err != "":
		l.Mark, l.Text = Bad, d.Path+": "+d.Err
		l.Remedy = "make it writable for your user, or choose another folder (uma-serve --help)"
	case !d.Exists:
		l.Text += ", not made yet"
	}
	if d.Err == "" && d.Free > 0 {
		l.Text += ", " + ui.Bytes(d.Free) + " free"
		if d.Free < leastFree {
			l.Mark, l.Remedy = Note, "little room: uma-cli rm NAME deletes a model"
		}
	}
	return l
}

// models has one line for all that is well, and one for each that is not.
func models(f *Facts) []Line {
	var lines []Line
	var good, big int
	for _, m := range f.Models {
		switch {
		case m.Err != "":
			lines = append(lines, Line{Check: "model", Mark: Note, Text: m.Name + ": " + m.Err,
				Remedy: "download it again (uma-cli pull), or remove it (uma-cli rm)"})
		case f.MemoryTotal > 0 && m.Bytes > f.MemoryTotal:
			big++
		default:
			good++
		}
	}
	all := Line{Check: "models", Mark: OK, Text: fmt.Sprintf("%d that can be read and fit", good)}
	if big > 0 {
		all.Mark = Note
		all.Text += fmt.Sprintf(", %d larger than this machine's memory", big)
		all.Remedy = "uma-cli models says which; a smaller quantization may fit"
	}
	if good == 0 && big == 0 {
		all.Text, all.Remedy = "none but the built-in uma-tiny", "uma-cli pull qwen3:4b downloads one"
		all.Mark = Note
	}
	return append([]Line{all}, lines...)
}

func port(p Port) Line {
	l := Line{Check: "port", Mark: OK, Text: p.Address + " is free"}
	if p.Taken {
		l.Text = p.Address + " is in use"
		l.Mark, l.Remedy = Note, "if it is not uma-serve: --listen of the daemon needs another port"
	}
	return l
}
