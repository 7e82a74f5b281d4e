package front

import (
	"fmt"
	"strconv"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/internal/host/sandbox"
)

// supervise answers the kernel's questions about a confined process, and logs the calls that are refused.
func (f *Front) supervise(m *served, p *process, fd int) {
	policy, pid := daemon.SandboxPolicy(p.cfg), p.pid()
	policy.Read = append(policy.Read, procOf(pid))
	go func() {
		logged := map[sandbox.Denial]bool{}
		err := sandbox.Supervise(fd, policy, func(d sandbox.Denial) {
			d.TID = 0
			// The log leaves out repetitions of a message: each call, and each file, has its own. A process that tries
			// ever new files does not fill the log.
			text := "an engine process was refused further system calls"
			if len(logged) < maxLogged || logged[d] {
				logged[d], text = true, "an engine process was refused "+d.Call
				if d.Path != "" {
					text += fmt.Sprintf(" of %.200s", d.Path)
				}
			}
			f.log.Warn(text, "model", m.name, "pid", pid, "call", d.Call, "path", d.Path)
			f.loop.Do(func() { m.denied++ })
		})
		if err != nil {
			f.log.Error("an engine process is not supervised any more: it is killed", "model", m.name, "pid", pid,
				"error", err)
			p.kill()
		}
	}()
}

// maxLogged is the most different refused calls of a process that are logged by name.
const maxLogged = 64

// procOf returns the folder of a process.
func procOf(pid int) string { return "/proc/" + strconv.Itoa(pid) }
