package engineproc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/devices"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/daemon/shm/connstate"
	"github.com/uma-serve/uma-serve/ipc"
)

// Spec says how an engine process is started.
type Spec struct {
	Program  string
	Args     []string // the last one is Model
	Model    string   // the model's name, as ps shows it
	Shown    string   // the program's path as ps shows it; "" = Program
	Stderr   *os.File
	Leases   *os.File // the table of device leases; nil: the process takes none
	Slots    int      // connections of its table
	Requests int      // of a connection
	OnDevice bool     // it needs the library of a back end
	Start    link.EngineStart
}

// Run starts the process and writes its first message. fd is the front's end of the link. The caller waits for cmd and
// closes the table.
func (s *Spec) Run() (cmd *exec.Cmd, table *connstate.Table, fd int, err error) {
	body, err := json.Marshal(&s.Start)
	if err != nil {
		return nil, nil, -1, err
	}
	if table, err = connstate.Create(s.Slots, min(s.Requests, connstate.MaxRequests)); err != nil {
		return nil, nil, -1, err
	}
	ours, theirs, err := ipc.SocketPair()
	if err != nil {
		table.Close()
		return nil, nil, -1, err
	}
	end := os.NewFile(uintptr(theirs), "link")
	defer end.Close()
	cmd = exec.Command(s.Program, append(slices.Clone(s.Args), s.Model)...)
	if s.Shown != "" {
		cmd.Args[0] = s.Shown
	}
	cmd.ExtraFiles = []*os.File{end, table.File()} // link.FD, link.TableFD
	if s.Leases != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, s.Leases) // link.LeaseFD
	}
	cmd.Stderr = s.Stderr
	cmd.Env = devices.DriverEnvironment()
	if !s.OnDevice { // the sandbox would refuse to open a back end's library
		cmd.Env = append(cmd.Env, "UMA_BACKEND_DIR="+os.DevNull)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the front handles Ctrl-C at a terminal
	if err = cmd.Start(); err == nil {
		if err = ipc.WriteLinkMessage(ours, link.Start, body); err == nil {
			return cmd, table, ours, nil
		}
		_ = cmd.Process.Kill() // fails when it has ended
		_ = cmd.Wait()
	}
	unix.Close(ours)
	table.Close()
	return nil, nil, -1, err
}

// TracePath returns the file of a process's trace: FILE for the first process of the default model ("") and FILE-2 for
// its second one, FILE-MODEL and FILE-MODEL-2 for those of another model, before the extension of FILE. before is how
// many processes the model has had.
func TracePath(file, model string, before int) string {
	ext := filepath.Ext(file)
	base := strings.TrimSuffix(file, ext)
	if model != "" {
		base += "-" + FileName(model)
	}
	if before > 0 {
		base += fmt.Sprintf("-%d", before+1)
	}
	return base + ext
}

// FileName returns a model's name without the characters that a file name cannot have.
func FileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == ':' || r < ' ' {
			return '_'
		}
		return r
	}, name)
}
