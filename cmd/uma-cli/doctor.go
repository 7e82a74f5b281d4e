package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/cmd/uma-cli/internal/doctor"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
	"github.com/uma-serve/uma-serve/internal/cli/clierr"
	"github.com/uma-serve/uma-serve/internal/cli/ui"
	"github.com/uma-serve/uma-serve/internal/wireclient"
	"github.com/uma-serve/uma-serve/models/store"
)

// defaultPorts: the documents let the daemon listen on the first, and clients of ollama look at the second.
var defaultPorts = []string{"127.0.0.1:8737", "127.0.0.1:11434"}

func newDoctor(dial dialer, address *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check daemon, device, memory, limits, sandbox, folders, models and ports; say what to do",
		Long: `Check what uma-serve needs of this machine: a line for each thing, with what to do where something
is wrong.

  ok       nothing to do
  note     works, and could be better
  bad      does not work
  unknown  this system does not say

Exit status: 0, or 1 if a line is bad (a daemon that does not answer is).`,
		Args: noArgs,
	}
	open := modelsDir(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the lines as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		facts, err := gather(cmd.Context(), dial, *address, open())
		if err != nil {
			return err
		}
		lines := doctor.Check(facts)
		out := ui.Open(os.Stdout)
		if asJSON {
			if err := out.JSON(lines); err != nil {
				return err
			}
		} else if err := out.Print(doctorText(out, lines)); err != nil {
			return err
		}
		if doctor.Failed(lines) {
			return exitStatus(exitError)
		}
		return nil
	}
	return cmd
}

// gather asks the daemon, the store of models and the system.
func gather(ctx context.Context, dial dialer, address string, models *store.Store) (*doctor.Facts, error) {
	f := &doctor.Facts{ClientVersion: buildinfo.Version}
	var err error
	if f.Socket, err = socketPath(address); err != nil {
		return nil, err
	}
	f.Folders = []doctor.Folder{{Name: "models folder", Path: models.Dir()}}
	if cache, err := os.UserCacheDir(); err == nil {
		f.Folders = append(f.Folders, doctor.Folder{Name: "cache folder", Path: filepath.Join(cache, "uma-serve")})
	}
	for _, p := range defaultPorts {
		f.Ports = append(f.Ports, doctor.Port{Address: p})
	}
	asked, cancel := withTimeout(ctx, askTimeout)
	defer cancel()
	if c, err := dial(asked); err != nil {
		f.SocketErr = clierr.Text(err)
	} else {
		defer c.Close()
		if f.Daemon, err = askDaemon(asked, c); err != nil {
			f.SocketErr = clierr.Text(err)
		}
	}
	found, err := models.Scan(ctx)
	if err != nil {
		return nil, err
	}
	for i := range found.Models {
		m := &found.Models[i]
		fact := doctor.Model{Name: m.ID(), Bytes: uint64(max(m.Bytes, 0)), Err: m.Incomplete}
		if fact.Err == "" {
			fact.Err = doctor.Readable(m.Path())
		}
		f.Models = append(f.Models, fact)
	}
	for _, p := range found.Problems {
		f.Models = append(f.Models, doctor.Model{Name: p.Path, Err: p.Why})
	}
	f.Gather("/")
	return f, nil
}

func askDaemon(ctx context.Context, c *wireclient.Client) (*doctor.Daemon, error) {
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	d := &doctor.Daemon{Version: info.Version, Status: info.Status, Engine: info.Engine}
	if info.Capabilities != nil {
		d.Device = info.Capabilities.DeviceName
		if info.Capabilities.Device == "cpu" {
			d.Device = "cpu (" + info.Capabilities.DeviceName + ")"
		}
		d.Kernels = info.Capabilities.Kernels
	}
	return d, nil
}

// doctorText returns a row for each line, its remedy below it.
func doctorText(out *ui.Terminal, lines []doctor.Line) string {
	var b strings.Builder
	for _, l := range lines {
		mark := strings.Repeat(" ", 7-len(l.Mark)) + string(l.Mark)
		if l.Mark == doctor.Bad {
			mark = out.Red(mark)
		}
		b.WriteString(mark + "  " + l.Check + strings.Repeat(" ", max(14-len(l.Check), 1)) + clean(l.Text) + "\n")
		if l.Remedy != "" {
			b.WriteString(strings.Repeat(" ", 23) + "→ " + clean(l.Remedy) + "\n")
		}
	}
	return b.String()
}
