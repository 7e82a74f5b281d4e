//go:build cgo && (amd64 || arm64)

package agent

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// C API of NIXL 1.5: nixl_capi_status_t, nixl_capi_mem_type_t and nixl_capi_xfer_op_t. Handles are pointers to C++
// objects, uintptr here.
const (
	capiSuccess    = 0
	capiInProgress = 1
	capiDRAM       = 0
	capiRead       = 0
)

// statusNames are the negative values of nixl_capi_status_t.
var statusNames = map[int32]string{-1: "invalid parameter", -2: "the back end failed", -3: "invalid state",
	-4: "exception", -6: "not found"}

// capi are the functions that this package calls, by the names of libnixl_capi.so behind nixl_capi_.
type capi struct {
	createAgent  func(name string, config *agentConfig, agent *uintptr) int32
	pluginParams func(agent uintptr, plugin string, mems, params *uintptr) int32
	backend      func(agent uintptr, plugin string, params uintptr, backend *uintptr) int32
	regList      func(kind int32, list *uintptr) int32
	regAdd       func(list, address, n uintptr, device uint64, metadata, metadataLen uintptr) int32
	register     func(agent, list, args uintptr) int32
	metadata     func(agent uintptr, data *unsafe.Pointer, n *uintptr) int32
	load         func(agent uintptr, data *byte, n uintptr, name *unsafe.Pointer) int32
	invalidate   func(agent uintptr, name string) int32
	xferList     func(kind int32, list *uintptr) int32
	xferAdd      func(list, address, n uintptr, device uint64) int32
	freeXferList func(list uintptr) int32
	createXfer   func(agent uintptr, op int32, local, remote uintptr, name string, request *uintptr, args uintptr) int32
	post         func(agent, request, args uintptr) int32
	status       func(agent, request uintptr) int32
	release      func(agent, request uintptr) int32
	freeXfer     func(request uintptr) int32
}

func (c *capi) symbols() map[string]any {
	return map[string]any{
		"create_configured_agent": &c.createAgent, "get_plugin_params": &c.pluginParams, "create_backend": &c.backend,
		"create_reg_dlist": &c.regList, "reg_dlist_add_desc": &c.regAdd, "register_mem": &c.register,
		"get_local_md": &c.metadata, "load_remote_md": &c.load, "invalidate_remote_md": &c.invalidate,
		"create_xfer_dlist": &c.xferList, "xfer_dlist_add_desc": &c.xferAdd, "destroy_xfer_dlist": &c.freeXferList,
		"create_xfer_req": &c.createXfer, "post_xfer_req": &c.post, "get_xfer_status": &c.status,
		"release_xfer_req": &c.release, "destroy_xfer_req": &c.freeXfer,
	}
}

// agentConfig is nixl_capi_agent_config_t. The fields without a name stay 0.
type agentConfig struct {
	progressThread bool
	_              bool  // listen_thread
	_              int32 // listen_port
	_              int32 // thread_sync
	workers        uint32
	progressPause  uint64 // µs
	_              uint64 // listen_pause
	_              bool   // telemetry
}

// library is NIXL in this process: one agent with the back end UCX and one registered pool.
type library struct {
	capi
	pool []byte // outside of Go's heap
	blob []byte // the metadata

	mu    sync.Mutex // an agent without thread_sync takes one call at a time
	agent uintptr
	// since is the start of the running call, in ns after begun; 0 = none runs. The watchdog reads it.
	since atomic.Int64
	begun time.Time
}

// openLibrary loads libnixl_capi.so and registers a pool. name is unique among the agents that meet.
func openLibrary(path, name string, poolBytes int64) (transport, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load NIXL: %w; pip install --no-deps nixl-cu12, and name its libnixl_capi.so by the "+
			"option library", err)
	}
	l := &library{begun: time.Now()}
	for symbol, f := range l.symbols() {
		at, err := purego.Dlsym(handle, "nixl_capi_"+symbol)
		if err != nil {
			return nil, fmt.Errorf("%s has no function nixl_capi_%s: want NIXL 1.5", path, symbol)
		}
		purego.RegisterFunc(f, at)
	}
	if l.pool, err = unix.Mmap(-1, 0, int(poolBytes), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return nil, fmt.Errorf("pool of %d bytes (option pool): %w", poolBytes, err)
	}
	go l.watch()
	if err := l.begin(name); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *library) begin(name string) error {
	// The thread makes progress for peers that read by TCP. Without a pause it takes a core while nothing happens.
	config := agentConfig{progressThread: true, workers: 1, progressPause: 1000}
	var mems, params, backend, list uintptr
	for _, step := range []struct {
		what string
		call func() int32
	}{
		{"create_configured_agent", func() int32 { return l.createAgent(name, &config, &l.agent) }},
		{"get_plugin_params UCX", func() int32 { return l.pluginParams(l.agent, "UCX", &mems, &params) }},
		{"create_backend UCX", func() int32 { return l.backend(l.agent, "UCX", params, &backend) }},
		{"create_reg_dlist", func() int32 { return l.regList(capiDRAM, &list) }},
		{"reg_dlist_add_desc", func() int32 {
			return l.regAdd(list, uintptr(l.Base()), uintptr(len(l.pool)), 0, 0, 0)
		}},
		{"register_mem", func() int32 { return l.register(l.agent, list, 0) }},
	} {
		if err := statusError(step.what, step.call()); err != nil {
			return err
		}
	}
	// The metadata has the regions that are registered when it is taken.
	var data unsafe.Pointer
	var n uintptr
	if err := statusError("get_local_md", l.metadata(l.agent, &data, &n)); err != nil {
		return err
	}
	if n == 0 || n > maxMetadata {
		return fmt.Errorf("NIXL's metadata of this agent is %d bytes long, want 1 to %d", n, maxMetadata)
	}
	l.blob = append(l.blob, unsafe.Slice((*byte)(data), n)...)
	return nil
}

func statusError(what string, status int32) error {
	if status == capiSuccess || status == capiInProgress {
		return nil
	}
	text := statusNames[status]
	if text == "" {
		text = "unknown status"
	}
	return fmt.Errorf("%w: nixl_capi_%s: %s (%d)", errTransfer, what, text, status)
}

// exclusive runs f while no other call into the library runs.
func (l *library) exclusive(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since.Store(max(1, int64(time.Since(l.begun))))
	defer l.since.Store(0)
	return f()
}

// watch ends the process when a call into the library does not return: it cannot be cancelled, and the process that
// started this one starts another.
func (l *library) watch() {
	for range time.Tick(callLimit / 8) {
		if since := l.since.Load(); since != 0 && time.Since(l.begun)-time.Duration(since) > callLimit {
			fmt.Fprintf(os.Stderr, "nixl agent: a call into NIXL took more than %v; the agent ends\n", callLimit)
			os.Exit(exitStuck)
		}
	}
}

func (l *library) Pool() []byte     { return l.pool }
func (l *library) Base() uint64     { return uint64(uintptr(unsafe.Pointer(&l.pool[0]))) }
func (l *library) Metadata() []byte { return l.blob }

func (l *library) Load(metadata []byte) (name string, err error) {
	if len(metadata) == 0 {
		return "", errors.New("a peer's metadata is empty")
	}
	err = l.exclusive(func() error {
		var text unsafe.Pointer
		status := l.load(l.agent, &metadata[0], uintptr(len(metadata)), &text)
		if err := statusError("load_remote_md", status); err != nil {
			return err
		}
		name = unix.BytePtrToString((*byte)(text)) // not freed: some bytes for each connection
		return nil
	})
	return name, err
}

func (l *library) Forget(name string) {
	_ = l.exclusive(func() error { return statusError("invalidate_remote_md", l.invalidate(l.agent, name)) })
}

// Read posts a transfer and asks for its state until it has ended.
func (l *library) Read(name string, address uint64, at, n int64, deadline time.Time) (stuck bool, err error) {
	var request uintptr
	err = l.exclusive(func() error {
		var local, remote uintptr
		defer func() { l.freeXferList(local); l.freeXferList(remote) }()
		for _, step := range []struct {
			what string
			call func() int32
		}{
			{"create_xfer_dlist", func() int32 { return l.xferList(capiDRAM, &local) }},
			{"create_xfer_dlist", func() int32 { return l.xferList(capiDRAM, &remote) }},
			{"xfer_dlist_add_desc", func() int32 {
				return l.xferAdd(local, uintptr(l.Base())+uintptr(at), uintptr(n), 0)
			}},
			{"xfer_dlist_add_desc", func() int32 { return l.xferAdd(remote, uintptr(address), uintptr(n), 0) }},
			{"create_xfer_req", func() int32 {
				return l.createXfer(l.agent, capiRead, local, remote, name, &request, 0)
			}},
			{"post_xfer_req", func() int32 { return l.post(l.agent, request, 0) }},
		} {
			if err := statusError(step.what, step.call()); err != nil {
				return err
			}
		}
		return nil
	})
	pause := time.Duration(0)
	for err == nil {
		status := int32(capiInProgress)
		err = l.exclusive(func() error {
			status = l.status(l.agent, request)
			return statusError("get_xfer_status", status)
		})
		if err != nil || status == capiSuccess {
			break
		}
		if time.Now().After(deadline) {
			err = fmt.Errorf("%w: %d bytes have not come in time", errTransfer, n)
			break
		}
		// At first the bytes are about to come; a transfer over a network takes longer.
		time.Sleep(pause)
		pause = min(pause+20*time.Microsecond, time.Millisecond)
	}
	if request != 0 {
		_ = l.exclusive(func() error {
			stuck = l.release(l.agent, request) != capiSuccess
			if !stuck {
				l.freeXfer(request)
			}
			return nil
		})
	}
	return stuck, err
}

// Close leaves the agent to the end of the process: destroying it waits for its threads.
func (l *library) Close() {}
