package front

import (
	"context"
	"sync/atomic"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/devices"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/runtime"
)

// deviceMemory is the devices of this machine and their memory.
type deviceMemory struct {
	look  func() runtime.Backends          // waits where they are being looked at
	seen  atomic.Pointer[runtime.Backends] // none before look
	rooms []config.Room                    // of discrete devices; nil: there are none, or it is not known
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

// ownDevices asks a process of this program.
func (f *Front) ownDevices(ctx context.Context) (runtime.Backends, error) {
	return devices.Ask(ctx, devices.DriverEnvironment(), f.opts.Program, link.DevicesArg)
}
