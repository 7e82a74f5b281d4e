//go:build cgo && (amd64 || arm64)

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/internal/testutil/nixltest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/fabric/fabrictest"
	"github.com/uma-serve/uma-serve/meridian/fabric/nixl"
)

// These run two agents, processes with the real library, when scripts/nixl.sh has installed it.

// TestMain is an agent where it is asked for.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == Arg {
		if err := Main(os.Args[2], os.Stdin, os.Stdout, slog.Default()); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// process is an agent's process.
type process struct {
	t      testing.TB
	url    string
	socket string
	stop   func()
}

func startProcess(t testing.TB, url string) *process {
	t.Helper()
	p := &process{t: t, socket: filepath.Join(t.TempDir(), "agent.sock"), stop: func() {}}
	p.url = nixl.WithSocket(url, p.socket)
	p.start()
	t.Cleanup(func() { p.stop() })
	return p
}

// start starts the agent; it must not run.
func (p *process) start() {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done, err := Start(ctx, Program{Path: self, Args: []string{Arg}, URL: p.url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		cancel()
		p.t.Fatal(err)
	}
	p.stop = func() { cancel(); <-done }
}

// pid returns the process that listens on the socket.
func (p *process) pid() (pid int) {
	p.t.Helper()
	waitfor.True(p.t, "the agent listens", func() bool {
		c, err := net.Dial("unix", p.socket)
		if err != nil {
			return false
		}
		defer c.Close()
		raw, err := c.(*net.UnixConn).SyscallConn()
		if err != nil {
			p.t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				pid = int(u.Pid)
			}
		})
		return pid > 0
	})
	return pid
}

func openReal(t testing.TB, p *process) *nixl.Fabric {
	t.Helper()
	f, err := nixl.Open(p.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLibraryConformance(t *testing.T) {
	urls := nixltest.Peers(t, 2, nixltest.Library(t), "")
	one, two := startProcess(t, urls[0]), startProcess(t, urls[1])
	fabrictest.Run(t, func(t testing.TB) fabric.Fabric {
		return emptied(t, apart{openReal(t, one), openReal(t, two)})
	})
}

// TestStopped: an agent that is stopped, not killed, accepts connections and is silent. No operation takes 2 s, and
// when it runs again its values are there.
func TestStopped(t *testing.T) {
	urls := nixltest.Peers(t, 2, nixltest.Library(t), "")
	one, two := startProcess(t, urls[0]), startProcess(t, urls[1])
	f, other := openReal(t, one), openReal(t, two)
	value := fabrictest.Value(1, 16<<20)
	fabrictest.MustPush(t, f, "k", value)
	fabrictest.WantPull(t, other, "k", value)
	pid := one.pid()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitfor.Stopped(t, pid)
	for what, op := range map[string]func(context.Context) error{
		"pull from the peer":    func(ctx context.Context) error { _, err := other.Pull(ctx, "k", nil); return err },
		"pull from the agent":   func(ctx context.Context) error { _, err := f.Pull(ctx, "k", nil); return err },
		"delete at the peer":    func(ctx context.Context) error { return other.Delete(ctx, "other") },
		"renewal from the peer": func(ctx context.Context) error { return other.Renew(ctx, "k") },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		if err := op(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v, within the limit: %v", what, err, ctx.Err() == nil)
		}
		cancel()
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the value is there again", func() bool {
		got, err := other.Pull(within(t), "k", nil)
		return err == nil && bytes.Equal(got, value)
	})
}

// TestKills kills agents at random points of pushes and transfers. UMA_KILLS sets how often.
func TestKills(t *testing.T) {
	kills := 5
	if n, err := strconv.Atoi(os.Getenv("UMA_KILLS")); err == nil {
		kills = n
	}
	urls := nixltest.Peers(t, 2, nixltest.Library(t), "&pool=64MiB&max=8MiB")
	agents := []*process{startProcess(t, urls[0]), startProcess(t, urls[1])}
	f := apart{openReal(t, agents[0]), openReal(t, agents[1])}
	r := rand.New(rand.NewPCG(1, 2))
	var ok, missed, failed int
	for i := range kills {
		victim := agents[r.IntN(2)].pid()
		killed := make(chan error, 1)
		time.AfterFunc(time.Duration(r.IntN(60_000))*time.Microsecond, func() {
			killed <- syscall.Kill(victim, syscall.SIGKILL)
		})
		pulled := false
		for n, dead := 0, false; !dead || !pulled; n++ { // until values come through again
			key, want := "k"+strconv.Itoa(n%7), fabrictest.Value(uint64(n%7), 2<<20)
			for _, push := range []bool{true, false} {
				ctx, cancel := context.WithTimeout(context.Background(), longest)
				var got []byte
				var err error
				if push {
					err = f.Push(ctx, key, want)
				} else {
					got, err = f.Pull(ctx, key, nil)
				}
				if ctx.Err() != nil {
					t.Errorf("kill %d: an operation took more than %v", i, longest)
				}
				cancel()
				switch {
				case err == nil && push:
					ok++
				case err == nil && bytes.Equal(got, want):
					ok++
					pulled = pulled || dead
				case err == nil:
					t.Fatalf("kill %d: a wrong value of %d bytes", i, len(got))
				case errors.Is(err, fabric.ErrNotFound):
					missed++
				case errors.Is(err, fabric.ErrUnavailable):
					failed++
				default:
					t.Fatalf("kill %d: %v", i, err)
				}
			}
			select {
			case err := <-killed:
				if dead = true; err != nil {
					t.Fatalf("kill %d: %v", i, err)
				}
			default:
			}
		}
	}
	if ok == 0 || failed+missed == 0 {
		t.Errorf("%d succeeded, %d failed, %d missed: the kills were not at random points", ok, failed, missed)
	}
	t.Logf("%d kills: %d operations succeeded, %d failed, %d missed", kills, ok, failed, missed)
}

// TestMissingLibrary: the reason why an agent does not start reaches the one who starts it.
func TestMissingLibrary(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := nixl.WithSocket(nixltest.Peers(t, 1, "/no/libnixl_capi.so", "")[0], filepath.Join(t.TempDir(), "s"))
	_, err = Start(context.Background(), Program{Path: self, Args: []string{Arg}, URL: url,
		Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "/no/libnixl_capi.so") {
		t.Errorf("%v", err)
	}
}

func BenchmarkNIXL(b *testing.B) {
	urls := nixltest.Peers(b, 2, nixltest.Library(b), "")
	one, two := startProcess(b, urls[0]), startProcess(b, urls[1])
	fabrictest.Bench(b, func(b testing.TB) fabric.Fabric { return apart{openReal(b, one), openReal(b, two)} })
}
