package front

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/uma-serve/uma-serve/daemon"
	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/runtime"
)

const (
	// devicesTime is the longest time for which drivers may look for their devices.
	devicesTime = 30 * time.Second
	// maxDevices bounds the report about them, in bytes.
	maxDevices = 1 << 20
)

// deviceMemory is the devices of this machine and their memory.
type deviceMemory struct {
	look  func() runtime.Backends // waits where they are being looked at
	seen  atomic.Pointer[runtime.Backends]
	rooms []config.Room // of discrete devices that models may take; nil: there are none, or it is not known
}

// lookAtDevices returns the back ends of the engine and their devices, as a process tells that is not confined: the
// front itself loads no drivers.
func (f *Front) lookAtDevices(ctx context.Context) runtime.Backends {
	if f.opts.Devices == nil {
		return runtime.Backends{}
	}
	b, err := f.opts.Devices(ctx)
	if err != nil {
		f.log.Error("the devices of this machine are not known: models are computed on the processor", "error", err)
		b.Said = err.Error()
	}
	f.devices.seen.Store(&b)
	return b
}

// seenDevices returns the devices if they have been looked at.
func (f *Front) seenDevices() (b runtime.Backends) {
	if seen := f.devices.seen.Load(); seen != nil {
		b = *seen
	}
	return b
}

// ownDevices asks a process of this program.
func (f *Front) ownDevices(ctx context.Context) (b runtime.Backends, err error) {
	ctx, cancel := context.WithTimeout(ctx, devicesTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.opts.Program, daemon.DevicesArg)
	cmd.Env = driverEnvironment()
	cmd.WaitDelay = time.Second
	var text, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{&text, maxDevices + 1}, &limited{&errs, maxDevices}
	if err := cmd.Start(); err != nil {
		return b, fmt.Errorf("start a process that looks at devices: %w", err)
	}
	err = cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // a process that a driver has started holds stdout open; the report is whole
	}
	switch {
	case text.Len() > maxDevices:
		err = fmt.Errorf("its report has more than %d bytes", maxDevices)
	case err == nil:
		err = json.Unmarshal(text.Bytes(), &b)
	}
	switch {
	case err == nil:
		return b, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("a driver did not answer within %v", devicesTime)
	}
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	return runtime.Backends{}, fmt.Errorf("look at devices: %w: %.300s", err, lines[len(lines)-1])
}

// limited drops what is written after the first so many bytes.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	if _, err := l.w.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}
