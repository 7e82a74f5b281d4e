package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/devices"
	"github.com/uma-serve/uma-serve/daemon/link"
	"github.com/uma-serve/uma-serve/runtime"
)

const oneDevice = `{"names":["Vulkan"],"devices":[{"name":"Vulkan0","total_bytes":5}]}`

// reportDevices is a process that looks at devices: a driver may end it, or write what it likes.
func reportDevices(how string) {
	switch how {
	case "crash":
		fmt.Fprintln(os.Stderr, "some driver: no such card")
		os.Exit(3)
	case "flood":
		for range devices.MaxReport {
			if _, err := fmt.Print("[[[["); err != nil {
				os.Exit(1)
			}
		}
	case "text":
		fmt.Println("hello")
	case "child": // it holds stdout open until the test opens the pipe
		cmd := exec.Command(os.Args[0], link.DevicesArg)
		cmd.Env = append(os.Environ(), "FRONT_TEST_DEVICES=hold")
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			os.Exit(1)
		}
		fmt.Print(oneDevice)
	case "hold":
		f, err := os.Open(os.Getenv("FRONT_TEST_PIPE"))
		if err != nil {
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, f)
	default:
		fmt.Print(oneDevice)
	}
	os.Exit(0)
}

// TestOwnDevices: the report of the process that looks at devices, and what becomes of one that has none.
func TestOwnDevices(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FRONT_TEST_PIPE", pipe)
	for how, want := range map[string]string{
		"":      "",
		"child": "",
		"crash": "exit status 3: some driver: no such card",
		"flood": "its report has more than 1048576 bytes",
		"text":  "look at devices: invalid character",
	} {
		f := &Front{opts: Options{Program: exe}}
		t.Setenv("FRONT_TEST_DEVICES", how)
		b, err := f.ownDevices(context.Background())
		switch {
		case want == "" && (err != nil || len(b.Devices) != 1 || b.Devices[0].Total != 5):
			t.Errorf("%+v, %v", b, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(b.Names) > 0):
			t.Errorf("%s: %+v, %v; want %q", how, b, err, want)
		}
		if how == "child" {
			f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
	}
}

// TestDevicesNotKnown: the reason why drivers could not be asked is kept for the model that needs a device.
func TestDevicesNotKnown(t *testing.T) {
	f := &Front{log: slog.New(slog.DiscardHandler), opts: Options{Devices: func(context.Context) (runtime.Backends,
		error) {
		return runtime.Backends{}, errors.New("a driver did not answer")
	}}}
	if b := f.lookAtDevices(t.Context()); b.Said != "a driver did not answer" {
		t.Errorf("%+v", b)
	}
}

// TestNoDevice: a model whose layers are to go to a device is not loaded without one, and the error says why.
func TestNoDevice(t *testing.T) {
	for _, c := range []struct {
		b    runtime.Backends
		want string
	}{
		{runtime.Backends{}, "this uma-serve has no back end for one (make backend-cuda or make backend-vulkan"},
		{runtime.Backends{Refused: []runtime.Refused{{Path: "/bin/libggml-cuda.so",
			Why: "libcuda.so.1: cannot open shared object file: No such file or directory"}}},
			"cuda: no driver: the library libcuda.so.1 is not installed"},
	} {
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r := start(t, Options{Devices: func(context.Context) (runtime.Backends, error) { return c.b, nil }}, nil,
			func(cfg *config.Config) { cfg.Model = path }, "--gpu-layers", "7")
		r.ends = true
		if err := r.end(); err == nil || !strings.Contains(err.Error(), "--gpu-layers is 7, and no device") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
