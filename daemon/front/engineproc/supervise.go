package engineproc

import (
	"fmt"
	"log/slog"
	"strconv"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/opening"
	"github.com/uma-serve/uma-serve/internal/host/sandbox"
)

// Supervise answers the kernel's questions about a confined process over fd until the process has ended, and logs the
// calls that are refused, each of which denied hears. The error says why the process is not supervised any more.
func Supervise(fd, pid int, cfg *config.Config, log *slog.Logger, denied func()) error {
	policy := opening.Policy(cfg)
	policy.Read = append(policy.Read, "/proc/"+strconv.Itoa(pid))
	logged := map[sandbox.Denial]bool{}
	return sandbox.Supervise(fd, policy, func(d sandbox.Denial) {
		d.TID = 0
		// The log leaves out repetitions of a message: each call, and each file, has its own. A process that tries ever
		// new files does not fill the log.
		text := "an engine process was refused further system calls"
		if len(logged) < maxLogged || logged[d] {
			logged[d], text = true, "an engine process was refused "+d.Call
			if d.Path != "" {
				text += fmt.Sprintf(" of %.200s", d.Path)
			}
		}
		log.Warn(text, "pid", pid, "call", d.Call, "path", d.Path)
		denied()
	})
}

// maxLogged is the most different refused calls of a process that are logged by name.
const maxLogged = 64
